namespace KvCluster.Client;

/// <summary>The answer to a read of one key.</summary>
/// <param name="Found">Whether the key exists.</param>
/// <param name="Value">Its value; empty if it does not.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
/// <param name="Position">The state that the answer was read from.</param>
public readonly record struct GetResult(bool Found, ReadOnlyMemory<byte> Value, Etag Etag, ShardPosition Position)
{
    /// <summary>
    /// For a <see cref="KvReadMode.Stale"/> read: for how long the answer may have been out of date, as far as the replica can know. Null if the replica has
    /// not heard from a leader since it started, or if the read was in another mode.
    /// </summary>
    public TimeSpan? Age { get; init; }
}

/// <summary>A key with its value.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Value">Up to 8 MiB; empty in scans of keys only.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
public readonly record struct KvEntry(ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value, Etag Etag);

/// <summary>The answer to a delete.</summary>
/// <param name="Existed">Whether the key existed.</param>
/// <param name="Position">The change's position in its shard.</param>
public readonly record struct DeleteResult(bool Existed, ShardPosition Position);

/// <summary>The answer to a write.</summary>
/// <param name="Position">The position of its last operation in the shard.</param>
/// <param name="Deleted">The number of keys that its deletes removed.</param>
/// <param name="Results">One for each operation, in order, if <see cref="KvWrite.WithResults"/> asked for them; otherwise empty.</param>
public sealed record WriteResult(ShardPosition Position, int Deleted, IReadOnlyList<OperationResult> Results);

/// <summary>What one operation of a write did.</summary>
/// <param name="Etag">The etag of its change; for a put now that of the key.</param>
/// <param name="Existed">
/// For a delete whether the key existed; null for a put. Null also if the write had several deletes and only some of their keys existed.
/// </param>
public readonly record struct OperationResult(Etag Etag, bool? Existed);

/// <summary>The shard that answered, and the state that the answer was evaluated on.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Etag">The newest etag of that state; for a change, its own etag.</param>
public readonly record struct ShardPosition(uint Shard, Etag Etag)
{
    /// <summary>
    /// Names the history of the data that the etag belongs to: the first 8 bytes of the cluster's lineage. 0 if not known. A restored cluster has another one, in which the etag means nothing.
    /// </summary>
    public ulong Lineage { get; init; }
}
