using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation;

/// <summary>
/// What a seed's run has beside its scenario. Each is drawn for itself from its number, so that all of them meet each other, and a new one changes nothing of
/// the others. (They were once derived from the seed modulo 3 and 4, so that a watch never met sets. The first number of a <see cref="Random"/> depends
/// linearly on its seed, so what two of them draw from neighbouring seeds is not independent either.)
/// </summary>
internal enum Feature
{
    /// <summary>Leaders become quiescent.</summary>
    Quiescence = 1,

    /// <summary>Leaders compare the digests of the replicas' trees.</summary>
    Digests = 2,

    /// <summary>A caller fills sets and has them deleted.</summary>
    Sets = 3,

    /// <summary>A caller puts keys that expire or that a session owns, and keeps sessions alive.</summary>
    Lives = 4,

    /// <summary>A caller makes transactions of all kinds of operations.</summary>
    Transactions = 5,

    /// <summary>A caller watches the shard.</summary>
    Watch = 6,

    /// <summary>Nodes have many more shards, so that each sends heartbeats and writes its control file rarely.</summary>
    ManyShards = 7,
}

/// <inheritdoc cref="Feature"/>
internal static class Features
{
    // More quiescence would leave less time for the rest of the protocol, and callers of everything would leave little to the others.
    private const int SeldomInOneOf = 4;
    private const int OftenInOneOf = 3;

    /// <summary>Whether the run of a seed has a feature, whatever its scenario and its course.</summary>
    public static bool Has(int seed, Feature feature) =>
        new SeededRandom(((ulong)feature << 32) | (uint)seed)
            .Between(0, feature is Feature.Digests or Feature.Transactions ? OftenInOneOf : SeldomInOneOf) == 0;
}
