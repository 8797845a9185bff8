namespace KvCluster.Simulation.Cluster;

/// <summary>What network, disks, coordinator and clocks of a run of whole replicas are like while faults go on.</summary>
internal sealed record ClusterConditions
{
    /// <summary>In thousandths of frames.</summary>
    public int LossPermille { get; init; } = 10;

    /// <inheritdoc cref="LossPermille"/>
    public int DuplicationPermille { get; init; } = 20;

    /// <summary>Frames that are delayed by up to <see cref="LateUs"/>, so that they arrive in another epoch or another process.</summary>
    public int LatePermille { get; init; } = 10;

    public long LateUs { get; init; } = 1_000_000;

    /// <summary>In thousandths of calls that are lost, of answers that are, and of calls that come up to two seconds late.</summary>
    public int CallLossPermille { get; init; } = 10;

    /// <summary>In thousandths of transactions at the coordinator.</summary>
    public int AmbiguousPermille { get; init; } = 160;

    /// <summary>In thousandths of what its watches tell: lost, told twice, or told late.</summary>
    public int WatchFaultPermille { get; init; } = 30;

    /// <summary>The greatest drift of a node's boot clock, in thousandths.</summary>
    public int DriftPermille { get; init; }

    public long SyncUs { get; init; } = 1_000;

    /// <summary>Journal that leaders keep for followers beyond what a checkpoint covers.</summary>
    public long RetainedJournalBytes { get; init; } = 64 << 10;

    /// <summary>Journal goes by whole segments.</summary>
    public int SegmentBytesMax { get; init; } = 256 << 10;

    /// <summary>
    /// How much older than its age says a stale answer may be: what a message was under way, and how long a leader that is cut off goes on telling. 0: faults of this
    /// kind of run make it as long as the run.
    /// </summary>
    public long StaleSlackUs { get; init; }

    /// <summary>Each caller reaches one node only, and the one at the first node never writes: no writes wait at a leader there that has been cut off.</summary>
    public bool PinnedCallers { get; init; }

    /// <summary>Each node has a replica of another shard too, its only one.</summary>
    public bool HasNeighbours { get; init; }

    /// <summary>Callers that use the client library too, each with a way to the nodes of its own, and keys of all shards.</summary>
    public bool RoutedCallers { get; init; }

    /// <summary>Keys that all callers share.</summary>
    public int Keys { get; init; } = 3;

    /// <summary>
    /// Writes have many keys and long values: the tree gets thousands of pages, checkpoints begin by themselves, snapshots have many chunks, and what is under way to a follower
    /// reaches its window.
    /// </summary>
    public bool IsLarge { get; init; }

    /// <summary>For how long faults go on.</summary>
    public long DurationUs { get; init; } = 4_000_000;

    /// <summary>Sessions that the shard takes.</summary>
    public int SessionsMax { get; init; } = 4_096;

    /// <summary>How long idle ones stay where there is no room for another.</summary>
    public TimeSpan SessionIdleMin { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>Callers leave their sessions open and open others, more than there is room for: those that are idle have to end. Nobody's may where this is not so.</summary>
    public bool LeavesSessions { get; init; }

    /// <summary>Calls that such a caller makes at once now and then.</summary>
    public int CallsAtOnce { get; init; }

    public static ClusterConditions Any(Random random) => new()
    {
        SyncUs = random.Next(4) == 0 ? 20_000 : 1_000,
        DriftPermille = random.Next(3) == 0 ? 50 : 0,
        CallLossPermille = random.Next(3) == 0 ? 50 : 5,
    };

    public static ClusterConditions Large(Random random) => Any(random) with { IsLarge = true, Keys = 2_500 };

    public static ClusterConditions BadNetwork(Random random) => Any(random) with
    {
        LossPermille = random.Next(150),
        DuplicationPermille = random.Next(200),
        LatePermille = random.Next(200),
        LateUs = 2_000_000,
    };

    public static ClusterConditions BadCoordinator(Random random) => Any(random) with
    {
        AmbiguousPermille = random.Next(200, 700),
        WatchFaultPermille = random.Next(500),
    };

    public static ClusterConditions BadCalls(Random random) => Any(random) with { CallLossPermille = random.Next(30, 150) };

    public static ClusterConditions Pinned(Random random) => Any(random) with { PinnedCallers = true };

    public static ClusterConditions Neighboured(Random random) => Any(random) with { HasNeighbours = true };

    public static ClusterConditions Routed(Random random) => Neighboured(random) with
    {
        RoutedCallers = true,
        CallsAtOnce = random.Next(40) == 0 ? 10_000 : 100,
    };

    public static ClusterConditions Drifting(Random random) => Any(random) with { DriftPermille = 50 };

    public static ClusterConditions Prompt(Random random) => Any(random) with
    {
        LossPermille = 0,
        DuplicationPermille = 0,
        LatePermille = 0,
        StaleSlackUs = 20_000,
    };
}
