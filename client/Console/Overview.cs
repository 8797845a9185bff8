using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.AdminConsole;

/// <summary>The cluster as the page shows it: bounded lists made from every node's status.</summary>
internal static class Overview
{
    /// <summary>The maximum number of shards in one answer; the page says if there are more.</summary>
    public const int ShardsMax = 512;

    /// <summary>The maximum number of events in one answer, which are the newest.</summary>
    public const int EventsMax = 100;

    private const int HotPrefixesMax = 20;

    /// <param name="program">The program that the console belongs to.</param>
    /// <param name="canChange">Whether changes are enabled.</param>
    /// <param name="showsKeys">Whether to include callers' keys.</param>
    /// <param name="reading">The status, and when it was read.</param>
    public static object Of(string program, bool canChange, bool showsKeys, (GetStatusResponse Status, DateTimeOffset At) reading)
    {
        var status = reading.Status;
        var shards = status.Nodes.SelectMany(node => node.Replicas.Select(replica => (node.Node, Replica: replica)))
            .GroupBy(replica => replica.Replica.Route.Shard)
            .Select(replicas => new ShardSeen([.. replicas])).OrderBy(shard => shard.Route.Start.ToByteArray(), KeyOrder).ToList();
        var lags = shards.SelectMany(shard => shard.Replicas.Select(replica => (replica.Node, Lag: shard.LagOf(replica.Replica))))
            .ToLookup(lag => lag.Node, lag => lag.Lag);
        return new
        {
            program,
            status.Cluster,
            UnixMs = reading.At.ToUnixTimeMilliseconds(),
            Health = Health.Of(status.Nodes, shards, reading.At),
            canChange,
            showsKeys,
            Nodes = status.Nodes.Select(node => ToDocument(node, lags[node.Node].DefaultIfEmpty().Max())),
            ShardsTotal = shards.Count,
            Shards = shards.Take(ShardsMax).Select(ToDocument),
            HotPrefixes = showsKeys ? HotPrefixes(status.Nodes) : [],
            Events = Events(status.Nodes),
        };
    }

    private static readonly Comparer<byte[]> KeyOrder = Comparer<byte[]>.Create(static (one, other) => one.AsSpan().SequenceCompareTo(other));

    private static object ToDocument(NodeStatus node, ulong lag) => new
    {
        node.Node,
        node.Address,
        node.Version,
        Error = node.Error.Length > 0 ? node.Error : null,
        node.Draining,
        Replicas = node.Replicas.Count,
        Leads = node.Replicas.Count(replica => replica.Role == Role.Leader),
        Failed = node.Replicas.Count(replica => replica.Role == Role.Failed),
        Keys = Sum(node, replica => replica.Keys),
        DataAllocatedBytes = Sum(node, replica => replica.DataAllocatedBytes),
        JournalBytes = Sum(node, replica => replica.JournalBytes),
        Lag = lag,
        Reads = ToDocument(node.Activity?.Reads),
        Writes = ToDocument(node.Activity?.Writes),
        node.Activity?.Refused,
        Memory = ToDocument(node.Memory),
    };

    private static object? ToDocument(NodeMemory? memory) => memory is null ? null : new
    {
        memory.BudgetBytes,
        memory.ChangedPagesBytes,
        memory.ReaderPagesBytes,
        memory.FreePagesBytes,
        memory.JournalBytes,
        memory.JournalIndexBytes,
        memory.RequestsBytes,
        memory.HeldBackUs,
    };

    private static object? ToDocument(CallDurations? durations) => durations is null ? null : new { durations.BoundsUs, durations.Calls };

    private static object ToDocument(ShardSeen shard) => new
    {
        shard.Route.Shard,
        Start = shard.Route.Start.ToByteArray(),
        End = shard.Route.End.ToByteArray(),
        shard.Leader,
        shard.Newest.Epoch,
        Change = shard.Newest.Committed?.Change ?? 0,
        shard.Newest.Keys,
        shard.Newest.DataBytes,
        shard.Newest.DataAllocatedBytes,
        Replicas = shard.Replicas.Select(replica => new
        {
            replica.Node,
            Role = Client.StatusReading.TextOf(replica.Replica.Role),
            Lag = shard.LagOf(replica.Replica),
            Failure = replica.Replica.Failure.Length > 0 ? replica.Replica.Failure : null,
        }),
    };

    // All nodes sample at the same rate, so samples of different nodes can be added.
    private static IEnumerable<object> HotPrefixes(IEnumerable<NodeStatus> nodes)
    {
        var told = nodes.Where(node => node.Activity is not null).Select(node => node.Activity).ToList();
        var samples = told.Sum(activity => (long)activity.Samples);
        return told.SelectMany(activity => activity.HotPrefixes).GroupBy(hot => hot.Prefix)
            .Select(hot => (hot.Key, Share: hot.Sum(of => (long)of.Samples) / (double)Math.Max(1, samples)))
            .OrderByDescending(hot => hot.Share).ThenBy(hot => hot.Key.Length).Take(HotPrefixesMax)
            .Select(hot => new { Prefix = hot.Key.ToByteArray(), hot.Share });
    }

    private static IEnumerable<object> Events(IEnumerable<NodeStatus> nodes) => nodes.Where(node => node.Activity is not null)
        .SelectMany(node => node.Activity.Decisions.Select(decision => (node.Node, Told: decision)))
        .OrderByDescending(told => told.Told.Decision.UnixUs).Take(EventsMax)
        .Select(told => new { UnixMs = told.Told.Decision.UnixUs / 1_000, told.Node, told.Told.Shard, told.Told.Decision.Text, told.Told.Decision.Alarm });

    private static ulong Sum(NodeStatus node, Func<ReplicaStatus, ulong> number) => node.Replicas.Aggregate(0UL, (sum, replica) => sum + number(replica));
}
