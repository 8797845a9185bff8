namespace KvCluster.Client;

/// <summary>The result of draining a node.</summary>
/// <param name="GivenAway">Number of leaderships transferred.</param>
/// <param name="Kept">Shards that it still leads, and why.</param>
public sealed record DrainOutcome(int GivenAway, IReadOnlyDictionary<uint, string> Kept);
