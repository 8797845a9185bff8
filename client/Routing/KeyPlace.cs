namespace KvCluster.Client.Routing;

/// <summary>Where a key is in a shard map. While the ranges stay the same, its newest route is there, so that nobody has to search it again.</summary>
/// <param name="Map">The map; null for a key that was not searched.</param>
/// <param name="Slot">The slot of the map.</param>
internal readonly record struct KeyPlace(ShardMap? Map, int Slot)
{
    /// <summary>The shard that owns the key, or <see cref="ShardMap.NoShard"/>.</summary>
    public ShardId Shard => Map is null ? ShardMap.NoShard : Map.ShardOf(Slot);
}
