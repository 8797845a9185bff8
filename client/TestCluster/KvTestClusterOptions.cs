using KvCluster.Client;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Testing;

/// <summary>What is special about a <see cref="KvTestCluster"/>.</summary>
public sealed class KvTestClusterOptions
{
    /// <summary>
    /// The number of nodes, from 1 to 9. One is up soonest. With three, which are three replicas of each shard, the cluster goes on when one is stopped.
    /// </summary>
    public int Nodes { get; init; } = 1;

    /// <summary>The keys at which a further shard begins. Without any there is one shard.</summary>
    public IReadOnlyList<KvKey> ShardBounds { get; init; } = [];

    /// <summary>Where the nodes log; by default nowhere. It belongs to the caller.</summary>
    public ILoggerFactory Logs { get; init; } = NullLoggerFactory.Instance;
}
