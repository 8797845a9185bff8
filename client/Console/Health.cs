using System.Globalization;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.AdminConsole;

/// <summary>The state of a cluster in one sentence.</summary>
/// <param name="Text">For people.</param>
/// <param name="IsGood">Whether nothing is missing.</param>
internal sealed record Health(string Text, bool IsGood)
{
    /// <param name="nodes">The nodes.</param>
    /// <param name="shards">The shards.</param>
    /// <param name="at">When both were read.</param>
    public static Health Of(IReadOnlyCollection<NodeStatus> nodes, IReadOnlyCollection<ShardSeen> shards, DateTimeOffset at)
    {
        var answering = nodes.Count(static node => node.Error.Length == 0);
        var leaderless = shards.Count(static shard => shard.Leader == 0);
        var lacking = shards.Count(static shard => shard.Replicas.Count(static replica => Works(replica.Replica)) < shard.Route.Nodes.Count);
        var text = string.Create(CultureInfo.InvariantCulture, $"{answering} of {nodes.Count} nodes answer, ") + (shards.Count, leaderless, lacking) switch
        {
            (0, _, _) => "and no shard is known",
            (_, 0, 0) => $"and every shard has a leader and {ReplicasOf(shards)}",
            (_, 0, _) => $"every shard has a leader, and {Some(lacking, shards.Count)} without all of {(lacking == 1 ? "its" : "their")} replicas",
            (_, _, 0) => $"and {Some(leaderless, shards.Count)} without a leader",
            _ => $"{Some(leaderless, shards.Count)} without a leader, and {Some(lacking, shards.Count)} without all of {(lacking == 1 ? "its" : "their")} "
                + "replicas",
        };
        return new Health(text + SnapshotOf(nodes, at) + ".", answering == nodes.Count && shards.Count > 0 && leaderless == 0 && lacking == 0);
    }

    // An embedded coordinator has no snapshots, so nothing is said where none is known.
    private static string SnapshotOf(IReadOnlyCollection<NodeStatus> nodes, DateTimeOffset at)
    {
        var unixUs = nodes.Select(static node => node.CoordinatorSnapshotUnixUs).DefaultIfEmpty().Max();
        if (unixUs == 0)
            return "";
        var age = at - DateTimeOffset.FromUnixTimeMilliseconds(unixUs / 1_000);
        return string.Create(CultureInfo.InvariantCulture, $"; coordinator snapshot {AgeOf(age < TimeSpan.Zero ? TimeSpan.Zero : age)} old");
    }

    private static string AgeOf(TimeSpan age) => age switch
    {
        { TotalHours: < 2 } => string.Create(CultureInfo.InvariantCulture, $"{(int)age.TotalMinutes} min"),
        { TotalDays: < 2 } => string.Create(CultureInfo.InvariantCulture, $"{(int)age.TotalHours} h"),
        _ => string.Create(CultureInfo.InvariantCulture, $"{(int)age.TotalDays} days"),
    };

    private static bool Works(ReplicaStatus replica) => replica.Role is Role.Leader or Role.Follower or Role.Candidate;

    private static string ReplicasOf(IReadOnlyCollection<ShardSeen> shards) =>
        shards.Select(static shard => shard.Route.Nodes.Count).Distinct().ToList() is [var each]
            ? string.Create(CultureInfo.InvariantCulture, $"{each} {(each == 1 ? "replica" : "replicas")}")
            : "all of its replicas";

    private static string Some(int count, int all) => string.Create(CultureInfo.InvariantCulture, $"{count} of {all} shards {(count == 1 ? "is" : "are")}");
}
