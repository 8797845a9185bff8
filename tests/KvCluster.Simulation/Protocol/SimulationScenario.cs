namespace KvCluster.Simulation.Protocol;

/// <summary>
/// What a seed's run looks like. Not uniform: most runs have a calm network and one kind of trouble, because faults on top of faults keep the
/// cluster from ever reaching the narrow windows in which bugs live.
/// </summary>
internal sealed class SimulationScenario
{
    private SimulationScenario()
    {
    }

    public int Replicas { get; private init; }

    public long DurationUs { get; private init; }

    /// <summary>In thousandths of frames.</summary>
    public int LossPermille { get; private init; }

    /// <inheritdoc cref="LossPermille"/>
    public int DuplicationPermille { get; private init; }

    /// <summary>Frames that are delayed by up to <see cref="LateUs"/>, so that they arrive in another epoch or another process.</summary>
    public int LatePermille { get; private init; }

    public long LateUs { get; private init; }

    public long DelayUs { get; private init; }

    public long SyncUs { get; private init; }

    /// <summary>In thousandths of transactions.</summary>
    public int AmbiguousPermille { get; private init; }

    /// <summary>Mean time between faults of the generator.</summary>
    public long FaultEveryUs { get; private init; }

    /// <summary>In thousandths of the protocol's decisions (a promise, a transaction, a cut, a first serving): something fails just then.</summary>
    public int NarrowPermille { get; private init; }

    /// <summary>In thousandths of the generator's faults: a change of the replicas instead, so that changes follow each other.</summary>
    public int ReplicaChangePermille { get; private init; }

    /// <summary>The greatest drift of a replica's clock, in thousandths.</summary>
    public int DriftPermille { get; private init; }

    /// <summary>Leases; without them every read takes a round.</summary>
    public bool Leases { get; private init; }

    public static SimulationScenario Of(Random random)
    {
        var lossy = random.Next(3) == 0;
        return new SimulationScenario
        {
            Replicas = random.Next(5) == 0 ? 5 : 3,
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
            ReplicaChangePermille = random.Next(10) == 0 ? 500 : 0,
            DriftPermille = random.Next(3) == 0 ? 50 : 1,
            Leases = random.Next(8) != 0,
        };
    }
}
