using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;

namespace KvCluster.Router;

/// <summary>What a router needs to know.</summary>
internal sealed record RouterOptions
{
    /// <summary>Where it listens: "http://127.0.0.1:7400", or "https://..." with <see cref="Tls"/>; port 0: any free one.</summary>
    public required string Listen { get; init; }

    /// <summary>Nodes to learn the shard map from; one that answers is enough, the map names the others.</summary>
    public required IReadOnlyList<string> Seeds { get; init; }

    /// <summary>Secures the connections from clients, and to nodes at https addresses; null: nodes are trusted as the machine trusts.</summary>
    public ServerTlsOptions? Tls { get; init; }

    /// <summary>How long a call of a caller without a deadline may take: long enough to sit out a failover.</summary>
    public TimeSpan Timeout { get; init; } = TimeSpan.FromSeconds(10);

    /// <summary>What its calls may hold in memory together, in MiB.</summary>
    public int CallMemoryMebibytes { get; init; } = CallMemory.MebibytesDefault;

    /// <summary>Connections from clients at a time.</summary>
    public int ConnectionsMax { get; init; } = ListenerLimits.ConnectionsDefault;
}
