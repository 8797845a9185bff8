namespace KvCluster.Client;

/// <summary>How a <see cref="KvClient"/> reaches its cluster.</summary>
public sealed class KvClientOptions
{
    /// <summary>Addresses to learn the shard map from, "http://host:port" or "https://host:port", of routers or nodes. One that answers is enough.</summary>
    public IReadOnlyList<string> Endpoints { get; init; } = ["http://127.0.0.1:7400"];

    /// <summary>
    /// Send every call to the endpoint, a router, and let it route: for networks where the nodes' own addresses are not reachable. By
    /// default the client talks to the nodes itself, which saves a hop.
    /// </summary>
    public bool Gateway { get; init; }

    /// <summary>
    /// Identify every change, so that one whose outcome became unknown is settled by repeating it, also across failover and by another
    /// route: it is applied once, and the caller gets its first answer. Costs a round trip with the first change of each shard. Without it
    /// such a change ends with <see cref="KvOutcomeUnknownException"/> at once.
    /// </summary>
    public bool ExactlyOnce { get; init; } = true;

    /// <summary>How new reads must be that do not say so themselves, and which replicas may serve them.</summary>
    public KvReadMode Read { get; init; } = KvReadMode.Leader;

    /// <summary>How long a call may take in all, with every retry. Long enough to sit out the failover of a leader.</summary>
    public TimeSpan Timeout { get; init; } = TimeSpan.FromSeconds(10);

    /// <summary>For https endpoints; null: the machine's authorities, and no certificate is shown.</summary>
    public KvTlsOptions? Tls { get; init; }

    /// <summary>Calls that may wait for an answer at one node; further calls wait for a place.</summary>
    public int CallsInFlightMax { get; init; } = 4096;
}
