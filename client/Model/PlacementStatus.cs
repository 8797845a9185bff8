namespace KvCluster.Client;

/// <summary>What operators said of where replicas may lie, and how far it is.</summary>
/// <param name="Paused">No replica is moved.</param>
/// <param name="Leaving">Nodes that are to have no replicas any more, and how many they still have. A node with none can go.</param>
public sealed record PlacementStatus(bool Paused, IReadOnlyDictionary<uint, int> Leaving);
