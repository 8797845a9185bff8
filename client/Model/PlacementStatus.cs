namespace KvCluster.Client;

/// <summary>Where operators allow replicas to be placed, and how far the moves have progressed.</summary>
/// <param name="Paused">No replica is moved.</param>
/// <param name="Leaving">Nodes that are to lose all their replicas, and how many they still have. A node with none can be removed.</param>
public sealed record PlacementStatus(bool Paused, IReadOnlyDictionary<uint, int> Leaving);
