using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Storage.Context;

namespace KvCluster.Node.Configuration;

/// <summary>The options of a node.</summary>
internal sealed record NodeOptions
{
    /// <summary>The node's id, from 1.</summary>
    public required NodeId Node { get; init; }

    /// <summary>The data directory. Created if missing; used by one process at a time.</summary>
    public required string DataDirectory { get; init; }

    /// <summary>The address to listen on: "http://host:port", or "https://host:port" with <see cref="Tls"/>. Port 0 chooses a free one.</summary>
    public required string Listen { get; init; }

    /// <summary>The address at which clients and other nodes reach it; null: the one it listens on.</summary>
    public string? Advertise { get; init; }

    /// <summary>
    /// The address to listen on for streams of other nodes; null: the host of <see cref="Listen"/> with a port greater by <see cref="PeerPortOffset"/>.
    /// Port 0 chooses a free one.
    /// </summary>
    public string? ListenPeers { get; init; }

    /// <summary>The address at which other nodes reach that port; null: the host of <see cref="Advertise"/> with the port that it listens on.</summary>
    public string? AdvertisePeers { get; init; }

    /// <summary>Default distance from the port for clients to the port for nodes. Large enough to avoid the ports of other nodes on the same machine.</summary>
    public const int PeerPortOffset = 100;

    /// <summary>Total memory that its calls may use, in MiB.</summary>
    public int CallMemoryMebibytes { get; init; } = CallMemory.MebibytesDefault;

    /// <summary>
    /// Total memory that the stores of its replicas may use, in MiB: changed pages, bodies and index of the journal, waiting requests. Nothing else counts:
    /// not its calls (<see cref="CallMemoryMebibytes"/>), frames to other nodes (16 MiB per shard and node at most), nor the runtime.
    /// </summary>
    public int MemoryBudgetMebibytes { get; init; } = MemoryBudgetDefault();

    /// <summary>The least budget. With less, writers would wait for checkpoints most of the time.</summary>
    public const int MemoryBudgetMin = 128;

    /// <summary>Longest wait of a read for its replica to catch up.</summary>
    public TimeSpan ReadWaitMax { get; init; } = TimeSpan.FromSeconds(10);

    /// <summary>Maximum number of client connections.</summary>
    public int ConnectionsMax { get; init; } = ListenerLimits.ConnectionsDefault;

    /// <summary>The cluster's name.</summary>
    public string Cluster { get; init; } = "local";

    /// <summary>What this program supports. Tests let it be a later version.</summary>
    public ProgramLevels Levels { get; init; } = ProgramLevels.Current;

    /// <summary>Serves operators' calls at <see cref="Listen"/> too, and not only at the address for other nodes.</summary>
    public bool ServeAdmin { get; init; }

    /// <summary>Secures the node's connections; null: all are in plain text.</summary>
    public ServerTlsOptions? Tls { get; init; }

    /// <summary>The cluster to create if there is none, once all of its nodes have empty directories; null: wait until somebody else creates it.</summary>
    public NewCluster? Bootstrap { get; init; }

    /// <summary>Times and windows of the protocol. The lease is taken from the cluster's record.</summary>
    public ReplicationOptions Replication { get; init; } = new();

    /// <summary>The engine's bounds.</summary>
    public StoreOptions Storage { get; init; } = new();

    /// <summary>
    /// Number of its shards, those with the lowest ids, that have metrics of their own. Such a shard has five series here and two per follower, and a
    /// cluster may have a hundred thousand shards. Metrics of a node or a stream cover all shards.
    /// </summary>
    public int ShardSeriesMax { get; init; } = 64;

    /// <summary>How long a node whose data directory is not its newest waits for the conditions to continue without that one, before it gives up.</summary>
    public TimeSpan OldCopyWaitMax { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>
    /// A learner that makes no progress for this long, or whose node is away for this long, is given up. Its copy is started again, perhaps elsewhere.
    /// </summary>
    public TimeSpan LearnerPatience { get; init; } = TimeSpan.FromMinutes(3);

    /// <summary>How much of a stop's time may be used to transfer leaderships. The others must detect the end of those that remain.</summary>
    public TimeSpan DrainTimeMax { get; init; } = TimeSpan.FromSeconds(1);

    /// <summary>How long a stop may take. What is not done by then is abandoned, which is safe at any time.</summary>
    public TimeSpan StopTimeMax { get; init; } = TimeSpan.FromSeconds(3.5);

    /// <summary>
    /// A quarter of what .NET says that this process may use: the memory of the machine or, in a container with a limit, three quarters of that limit, unless
    /// .NET is configured otherwise (<c>DOTNET_GCHeapHardLimit</c>). So it is 3/16 of the limit. The system caches the data files in the rest, and several
    /// nodes may share a machine. In MiB.
    /// </summary>
    public static int MemoryBudgetDefault() => MemoryBudgetDefault(GC.GetGCMemoryInfo().TotalAvailableMemoryBytes);

    /// <summary>The budget of each of several nodes that share a machine: together they take what one would. In MiB.</summary>
    public static int MemoryBudgetOfEach(int nodes) => Math.Max(MemoryBudgetMin, MemoryBudgetDefault() / nodes);

    /// <summary>The same where .NET says so many bytes.</summary>
    internal static int MemoryBudgetDefault(long availableBytes) => (int)Math.Max(MemoryBudgetMin, availableBytes / 4 >> 20);
}
