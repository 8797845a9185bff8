using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;

namespace KvCluster.Router;

/// <summary>The options of a router.</summary>
internal sealed record RouterOptions
{
    /// <summary>The address to listen at: "http://127.0.0.1:7400", or "https://..." with <see cref="Tls"/>. Port 0 takes any free one.</summary>
    public required string Listen { get; init; }

    /// <summary>Nodes from which to load the shard map. One that answers is enough, because the map names the others.</summary>
    public required IReadOnlyList<string> Seeds { get; init; }

    /// <summary>Serves operators' calls too, which it passes to the nodes.</summary>
    public bool ServeAdmin { get; init; }

    /// <summary>Secures the connections from clients, and to nodes at https addresses. If null, nodes are trusted by the machine's authorities.</summary>
    public ServerTlsOptions? Tls { get; init; }

    /// <summary>How long a call may take if its caller set no deadline. Long enough for a failover.</summary>
    public TimeSpan Timeout { get; init; } = TimeSpan.FromSeconds(10);

    /// <summary>Calls itself before it is ready (<see cref="Api.FirstCalls"/>).</summary>
    public bool MakesFirstCalls { get; init; }

    /// <summary>The memory that its calls may use together, in MiB.</summary>
    public int CallMemoryMebibytes { get; init; } = CallMemory.MebibytesDefault;

    /// <summary>The maximum number of connections from clients.</summary>
    public int ConnectionsMax { get; init; } = ListenerLimits.ConnectionsDefault;
}
