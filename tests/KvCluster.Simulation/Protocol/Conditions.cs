namespace KvCluster.Simulation.Protocol;

/// <summary>The state of network, disks, coordinator and clocks in a run while faults continue.</summary>
internal sealed record Conditions
{
    public int Voters { get; init; } = 3;

    public int Learners { get; init; }

    public long DurationUs { get; init; }

    /// <summary>In thousandths of the frames.</summary>
    public int LossPermille { get; init; }

    /// <inheritdoc cref="LossPermille"/>
    public int DuplicationPermille { get; init; }

    /// <summary>Frames that are delayed by up to <see cref="LateUs"/>, so that they arrive in another epoch or process. In thousandths.</summary>
    public int LatePermille { get; init; }

    public long LateUs { get; init; }

    public long DelayUs { get; init; }

    public long SyncUs { get; init; }

    /// <summary>The size of a frame's records; at least one record. Small, so that tails arrive in parts.</summary>
    public int FrameBytes { get; init; } = 400;

    /// <summary>Transactions whose outcome is unknown, in thousandths.</summary>
    public int AmbiguousPermille { get; init; }

    /// <summary>Mean time between faults of the generator.</summary>
    public long FaultEveryUs { get; init; }

    /// <summary>In thousandths of the protocol's decisions (a promise, a transaction, a cut, a first serving): a fault is injected at that moment.</summary>
    public int NarrowPermille { get; init; }

    /// <summary>The greatest drift of a replica's clock, in thousandths.</summary>
    public int DriftPermille { get; init; }

    /// <summary>One caller never writes and mostly stays with the node that it calls, even with a leader that was cut off.</summary>
    public bool ReaderStays { get; init; }

    /// <summary>0 means no leases: every read takes a round.</summary>
    public long LeaseUs { get; init; } = 500_000;

    public static Conditions Any(Random random)
    {
        var lossy = random.Next(3) == 0;
        return new Conditions
        {
            Voters = random.Next(5) == 0 ? 5 : 3,
            DurationUs = 1_000_000L * random.Next(5, 11),
            LossPermille = lossy ? random.Next(100) : random.Next(3),
            DuplicationPermille = random.Next(3) == 0 ? random.Next(150) : random.Next(10),
            LatePermille = random.Next(2) == 0 ? random.Next(100) : 0,
            LateUs = random.Next(2) == 0 ? 50_000 : 3_000_000,
            DelayUs = random.Next(3) == 0 ? 20_000 : 1_000,
            SyncUs = random.Next(4) == 0 ? 60_000 : 2_000,
            AmbiguousPermille = random.Next(2) == 0 ? random.Next(600) : 0,
            FaultEveryUs = random.Next(2) == 0 ? random.Next(60_000, 400_000) : random.Next(400_000, 2_000_000),
            NarrowPermille = random.Next(2) == 0 ? random.Next(200) : 10,
            DriftPermille = random.Next(3) == 0 ? 50 : 1,
            LeaseUs = random.Next(8) == 0 ? 0 : 500_000,
        };
    }

    public static Conditions Calm(Random random) => Any(random) with
    {
        LossPermille = 0,
        DuplicationPermille = 0,
        LatePermille = 0,
        DelayUs = 1_000,
        SyncUs = 2_000,
        AmbiguousPermille = 0,
        FaultEveryUs = random.Next(300_000, 900_000),
        LeaseUs = 500_000,
    };

    /// <summary>Leases longer than the timeouts, so that elections often meet running grants.</summary>
    public static Conditions LongLeases(Random random) => Calm(random) with
    {
        DurationUs = 10_000_000,
        FaultEveryUs = random.Next(1_500_000, 3_500_000),
        LeaseUs = random.Next(3) == 0 ? 500_000 : 1_500_000,
        DriftPermille = random.Next(2) == 0 ? 50 : 0,
    };

    /// <summary>Three voters and leases of one and a half seconds.</summary>
    public static Conditions LongLeasesOfThree(Random random) => LongLeases(random) with { Voters = 3, LeaseUs = 1_500_000 };

    /// <summary>Many frames arrive seconds late.</summary>
    public static Conditions LateFrames(Random random) => Calm(random) with
    {
        Voters = 3,
        DurationUs = 10_000_000,
        LatePermille = 300,
        LateUs = 3_000_000,
        ReaderStays = true,
    };

    public static Conditions FiveVoters(Random random) => Calm(random) with { Voters = 5, DurationUs = 12_000_000 };

    public static Conditions ThreeVoters(Random random) => Calm(random) with { Voters = 3, DurationUs = 10_000_000 };

    public static Conditions BadCoordinator(Random random) => Calm(random) with
    {
        AmbiguousPermille = random.Next(200, 700),
        FaultEveryUs = random.Next(200_000, 1_500_000),
        NarrowPermille = random.Next(200),
    };

    public static Conditions BadNetwork(Random random) => Any(random) with
    {
        LossPermille = random.Next(200),
        DuplicationPermille = random.Next(300),
        LatePermille = random.Next(200),
        LateUs = 3_000_000,
        DelayUs = 20_000,
        AmbiguousPermille = 0,
    };

    public static Conditions SlowDisks(Random random) => Calm(random) with
    {
        Voters = 3,
        DurationUs = 10_000_000,
        SyncUs = random.Next(2) == 0 ? 20_000 : 60_000,
        FrameBytes = random.Next(4) != 0 ? 1 : 400,
    };

    public static Conditions AmbiguousChanges(Random random) => Calm(random) with
    {
        Voters = 3,
        Learners = 1,
        DurationUs = 10_000_000,
        AmbiguousPermille = 600,
        FaultEveryUs = random.Next(200_000, 600_000),
        NarrowPermille = 0,
    };

    public static Conditions WithLearners(Random random) => Calm(random) with { Voters = 3, Learners = 2, DurationUs = 10_000_000 };
}
