using KvCluster.Node.Map;

namespace KvCluster.Node.Hosting;

/// <summary>
/// Whether a node serves what it should serve. A node that starts, drains or stops is not ready whatever this says: <c>ProcessHealth.NotReady</c> asks here
/// last. Any thread.
/// </summary>
internal sealed class ShardReadiness(ShardDirectory map, ShardHost shards)
{
    /// <summary>Maximum age of the state of a replica that is ready. Quiescent leaders send a heartbeat every five seconds, and one may be lost.</summary>
    private static readonly TimeSpan AgeMax = TimeSpan.FromSeconds(15);

    /// <summary>Why requests should go elsewhere: something that this node should serve is not served, or not up to date. Null if ready.</summary>
    public string? NotReady()
    {
        var snapshot = map.Snapshot;
        if (snapshot.Records.IsEmpty)
            return "it has not read the shards' records yet";
        if (shards.Missing(snapshot).FirstOrDefault() is { } missing)
            return $"shard {missing.Shard}: its replica is being opened";
        return shards.All.Select(NotReady).FirstOrDefault(reason => reason is not null);
    }

    private static string? NotReady(HostedShard shard) => shard.Replica switch
    {
        null => $"shard {shard.Shard}: its replica failed: {shard.Failure}",
        { Failure: { } failure } => $"shard {shard.Shard}: its replica failed: {failure.Message}",
        { Reads.AgeUs: null } => $"shard {shard.Shard}: it has not heard from a leader",
        { Reads.AgeUs: { } ageUs } when ageUs > AgeMax.TotalMicroseconds =>
            $"shard {shard.Shard}: its data is {ageUs / 1_000_000} s old; there is no leader, or the replica lags behind",
        _ => null,
    };
}
