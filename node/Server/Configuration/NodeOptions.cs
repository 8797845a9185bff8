using KvCluster.Node.Coordination;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Storage.Context;

namespace KvCluster.Node.Configuration;

/// <summary>What a node is started with.</summary>
internal sealed record NodeOptions
{
    /// <summary>The node's id, from 1 on.</summary>
    public required uint Node { get; init; }

    /// <summary>Where its replicas lie. Created when it is not there; used by one process at a time.</summary>
    public required string DataDirectory { get; init; }

    /// <summary>Where it listens, "http://host:port", or "https://host:port" with <see cref="Tls"/>; port 0: a free one.</summary>
    public required string Listen { get; init; }

    /// <summary>Where clients and other nodes reach it; null: where it listens.</summary>
    public string? Advertise { get; init; }

    /// <summary>Where it listens for the streams of other nodes; null: at the host of <see cref="Listen"/>, <see cref="PeerPortOffset"/> ports above it; port 0: a free one.</summary>
    public string? ListenPeers { get; init; }

    /// <summary>Where other nodes reach that port; null: at the host of <see cref="Advertise"/>, by the port that it listens on.</summary>
    public string? AdvertisePeers { get; init; }

    /// <summary>From the port for clients to the one for nodes, if nobody says another: beyond the ports of other nodes on the same machine.</summary>
    public const int PeerPortOffset = 100;

    /// <summary>What its calls may hold in memory together, in MiB.</summary>
    public int CallMemoryMebibytes { get; init; } = CallMemory.MebibytesDefault;

    /// <summary>A read waits no longer for its replica to have what it asks for.</summary>
    public TimeSpan ReadWaitMax { get; init; } = TimeSpan.FromSeconds(10);

    /// <summary>Connections from clients at a time.</summary>
    public int ConnectionsMax { get; init; } = ListenerLimits.ConnectionsDefault;

    /// <summary>The cluster's name.</summary>
    public string Cluster { get; init; } = "local";

    /// <summary>Secures the node's connections; null: all in plain text.</summary>
    public ServerTlsOptions? Tls { get; init; }

    /// <summary>The cluster to create where there is none; null: wait until somebody else does.</summary>
    public NewCluster? Bootstrap { get; init; }

    /// <summary>Times and windows of the protocol; its lease is taken from the cluster's record.</summary>
    public ReplicationOptions Replication { get; init; } = new();

    /// <summary>The engine's bounds.</summary>
    public StoreOptions Storage { get; init; } = new();

    /// <summary>
    /// So many of its shards, those with the least ids, have metrics of their own. A shard has five series here and at each follower two, and a
    /// cluster may have a hundred thousand shards; what is said of a node or a stream covers all of them.
    /// </summary>
    public int ShardSeriesMax { get; init; } = 64;

    /// <summary>How long a node whose data directory is not its newest waits for what it takes to go on without that one, before it gives up.</summary>
    public TimeSpan RejoinWaitMax { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>A learner that gets no further for so long, or whose node is away for so long, is given up: its copy is begun anew, maybe elsewhere.</summary>
    public TimeSpan LearnerPatience { get; init; } = TimeSpan.FromMinutes(3);

    /// <summary>Of a stop's time, how much may go into handing leaderships over; what is left then is found out by the others.</summary>
    public TimeSpan DrainTimeMax { get; init; } = TimeSpan.FromSeconds(1);

    /// <summary>How long a stop may take; what is not done then is abandoned, which is safe at any time.</summary>
    public TimeSpan StopTimeMax { get; init; } = TimeSpan.FromSeconds(3.5);
}
