namespace KvCluster.Client;

/// <summary>What a node gave away.</summary>
/// <param name="GivenAway">Leaderships handed over.</param>
/// <param name="Kept">Shards that it still leads, and why.</param>
public sealed record DrainOutcome(int GivenAway, IReadOnlyDictionary<uint, string> Kept);
