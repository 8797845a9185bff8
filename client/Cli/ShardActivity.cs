using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>What a shard does, as two looks at a cluster tell it.</summary>
/// <param name="Shard">Its id.</param>
/// <param name="Leader">The node that leads it; null: none says that it does.</param>
/// <param name="Start">First key of its range.</param>
/// <param name="End">End of the range, exclusive; empty: the end of all keys.</param>
/// <param name="Changes">Changes that were ever committed.</param>
/// <param name="ChangesPerSecond">Since the look before; null if there was none.</param>
/// <param name="Keys">Keys of the replica that has applied most.</param>
/// <param name="DataBytes">Length of that replica's data file.</param>
/// <param name="Lag">Changes by which the replica that is furthest behind is behind.</param>
/// <param name="Replicas">Its replicas, of nodes that answered.</param>
/// <param name="Serving">Those that lead or follow.</param>
internal sealed record ShardActivity(
    uint Shard, uint? Leader, ReadOnlyMemory<byte> Start, ReadOnlyMemory<byte> End, ulong Changes, double? ChangesPerSecond, ulong Keys, ulong DataBytes,
    ulong Lag, int Replicas, int Serving)
{
    private const string LeaderRole = "leader";
    private const string FollowerRole = "follower";

    /// <summary>All shards, those that change most first.</summary>
    /// <param name="status">What the nodes tell.</param>
    /// <param name="before">The look before.</param>
    /// <param name="passed">The time since then.</param>
    public static IReadOnlyList<ShardActivity> Of(ClusterStatus status, IReadOnlyList<ShardActivity> before, TimeSpan passed)
    {
        var changesBefore = before.ToDictionary(static one => one.Shard, static one => one.Changes);
        return
        [
            .. status.Nodes.SelectMany(static node => node.Replicas.Select(replica => (node.Node, Replica: replica)))
                .GroupBy(static one => one.Replica.Shard)
                .Select(shard => OfShard([.. shard], changesBefore.TryGetValue(shard.Key, out var changes) ? (ulong?)changes : null, passed))
                .OrderByDescending(static one => one.ChangesPerSecond).ThenBy(static one => one.Shard),
        ];
    }

    private static ShardActivity OfShard((uint Node, ReplicaStatus Replica)[] replicas, ulong? changesBefore, TimeSpan passed)
    {
        var newest = replicas.MaxBy(static one => one.Replica.Applied).Replica;
        var committed = replicas.Max(static one => one.Replica.Committed.Change);
        // A restored cluster counts from an earlier number.
        double? rate = changesBefore is { } then && committed >= then && passed > TimeSpan.Zero ? (committed - then) / passed.TotalSeconds : null;
        return new ShardActivity(
            newest.Shard,
            // One that was deposed may not know it yet.
            replicas.Where(static one => one.Replica.Role == LeaderRole).OrderByDescending(static one => one.Replica.Epoch)
                .Select(static one => (uint?)one.Node).FirstOrDefault(),
            newest.Start, newest.End, committed, rate, newest.Keys, newest.DataBytes,
            replicas.Max(one => committed - Math.Min(committed, one.Replica.Applied.Change)),
            replicas.Length,
            replicas.Count(static one => one.Replica.Role is LeaderRole or FollowerRole));
    }
}
