namespace KvCluster.Simulation.Cluster;

/// <summary>The state of network, disks, coordinator and clocks in a run of whole replicas while faults continue.</summary>
internal sealed record ClusterConditions
{
    /// <summary>In thousandths of the frames.</summary>
    public int LossPermille { get; init; } = 10;

    /// <inheritdoc cref="LossPermille"/>
    public int DuplicationPermille { get; init; } = 20;

    /// <summary>Frames that are delayed by up to <see cref="LateUs"/>, so that they arrive in another epoch or process. In thousandths.</summary>
    public int LatePermille { get; init; } = 10;

    public long LateUs { get; init; } = 1_000_000;

    /// <summary>In thousandths: calls that are lost, answers that are lost, and calls that arrive up to two seconds late.</summary>
    public int CallLossPermille { get; init; } = 10;

    /// <summary>Transactions at the coordinator whose outcome is unknown, in thousandths.</summary>
    public int AmbiguousPermille { get; init; } = 160;

    /// <summary>Notifications of its watches that are lost, duplicated or late, in thousandths.</summary>
    public int WatchFaultPermille { get; init; } = 30;

    /// <summary>The greatest drift of a node's boot clock, in thousandths.</summary>
    public int DriftPermille { get; init; }

    public long SyncUs { get; init; } = 1_000;

    /// <summary>Journal that leaders keep for followers in addition to what a checkpoint does not cover.</summary>
    public long RetainedJournalBytes { get; init; } = 64 << 10;

    /// <summary>Journal is removed in whole segments.</summary>
    public int SegmentBytesMax { get; init; } = 256 << 10;

    /// <summary>
    /// How much older than its age a stale answer may be: the delay of a message, and the time for which a leader that was cut off still answers. 0
    /// if the faults of this kind of run make it as long as the run.
    /// </summary>
    public long StaleSlackUs { get; init; }

    /// <summary>Each caller reaches one node only, and the one at the first node never writes. So no writes wait at a leader there that was cut off.</summary>
    public bool PinnedCallers { get; init; }

    /// <summary>Each node also has the only replica of another shard.</summary>
    public bool HasNeighbours { get; init; }

    /// <summary>Some callers use the client library, each with its own connections to the nodes, and keys of all shards.</summary>
    public bool RoutedCallers { get; init; }

    /// <summary>Keys that all callers share.</summary>
    public int Keys { get; init; } = 3;

    /// <summary>One caller fills sets and has them deleted.</summary>
    public bool HasSets { get; init; }

    /// <summary>One caller puts keys that expire or that a session owns, and keeps sessions alive.</summary>
    public bool HasLives { get; init; }

    /// <summary>
    /// Writes have many keys and long values. The tree gets thousands of pages, checkpoints start by themselves, snapshots have many chunks, and
    /// frames to a follower fill its window.
    /// </summary>
    public bool IsLarge { get; init; }

    /// <summary>How long faults continue.</summary>
    public long DurationUs { get; init; } = 4_000_000;

    /// <summary>The maximum number of sessions of the shard.</summary>
    public int SessionsMax { get; init; } = 4_096;

    /// <summary>How long idle sessions stay when the table of sessions is full.</summary>
    public TimeSpan SessionIdleMin { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>Callers leave their sessions open and open more than fit, so idle ones must end. Otherwise no session may end.</summary>
    public bool LeavesSessions { get; init; }

    /// <summary>The number of calls that such a caller makes at once from time to time.</summary>
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
