namespace KvCluster;

/// <summary>
/// What a refusal with the reason SHARDS_DIFFER tells people: which shards have the keys, and what to do. For nodes, routers and the client in memory, so that
/// all say the same. Pure.
/// </summary>
internal static class DividedKeys
{
    /// <summary>The message.</summary>
    /// <param name="first">The shard of the first key.</param>
    /// <param name="other">The shard of a key that the first one does not have; null if it is not known.</param>
    public static string Text(ShardId first, ShardId? other)
    {
        var shards = other is { } known && known != first ? $"shards {first} and {known}" : $"shard {first} and another one";
        return $"The keys of the request belong to {shards}, and one shard must have them all; nothing was applied. "
            + "Make a request for each shard, or choose keys with a common prefix that no bound between shards divides.";
    }
}
