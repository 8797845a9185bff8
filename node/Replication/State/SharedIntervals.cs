namespace KvCluster.Replication.State;

/// <summary>Moments at which shards of a node do what each of them does in one of several intervals, each shard in its own.</summary>
internal static class SharedIntervals
{
    /// <summary>The next of a shard's moments: a multiple of the interval, of which the shard has one in <paramref name="every"/>.</summary>
    public static long NextUs(long nowUs, long intervalUs, int every, ShardId shard)
    {
        var ownUs = intervalUs * every;
        var phaseUs = intervalUs * (long)(Mixed(shard) % (ulong)every);
        return ((nowUs + ownUs - phaseUs) / ownUs * ownUs) + phaseUs;
    }

    // Which nodes should lead a shard follows from the remainder of its id, so those of one node have ids that are so far apart.
    private static ulong Mixed(ShardId shard) => (shard.Value * 0x9E37_79B9_7F4A_7C15) >> 32;
}
