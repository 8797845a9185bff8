namespace KvCluster.Client;

/// <summary>The answer to a read of one key.</summary>
/// <param name="Found">Whether the key exists.</param>
/// <param name="Value">Its value; empty if it does not.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
/// <param name="Position">The state that the answer was read from.</param>
public readonly record struct GetResult(bool Found, KvValue Value, Etag Etag, ShardPosition Position)
{
    /// <summary>
    /// For a <see cref="KvReadMode.Stale"/> read: for how long the answer may have been out of date, as far as the replica can know. Null if the replica has
    /// not heard from a leader since it started, or if the read was in another mode.
    /// </summary>
    public TimeSpan? Age { get; init; }

    /// <summary>The key that was found, if the nearest one was asked for; otherwise empty.</summary>
    public KvKey Key { get; init; }

    /// <summary>What ends the key besides a delete, if <see cref="KvGetOptions.WithLife"/> asked for it.</summary>
    public KvLife Life { get; init; }
}

/// <summary>What ends a key besides a delete.</summary>
/// <param name="Left">How long the key lives from the moment of the answer, if nobody changes that; zero if its time is over. Null if it does not
/// expire.</param>
/// <param name="Owner">
/// The etag of the opening of the session that owns the key, as <see cref="KvSession.Opened"/> has it; null if no session does. The session's id is not told,
/// because it is a secret.
/// </param>
public readonly record struct KvLife(TimeSpan? Left, Etag? Owner);

/// <summary>A key with its value.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Value">Up to 8 MiB; empty in scans of keys only.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
public readonly record struct KvEntry(KvKey Key, KvValue Value, Etag Etag)
{
    /// <summary>What ends the key besides a delete, if the scan asked for it.</summary>
    public KvLife Life { get; init; }
}

/// <summary>The answer to a put.</summary>
/// <param name="Key">The key that was set; with a sequence the new one.</param>
/// <param name="Position">The change's position in its shard.</param>
public readonly record struct PutResult(KvKey Key, ShardPosition Position)
{
    /// <summary>The etag of the change, which is now that of the key.</summary>
    public Etag Etag => Position.Etag;
}

/// <summary>The answer to an increment.</summary>
/// <param name="Number">The number afterwards.</param>
/// <param name="Position">The change's position in its shard; its etag is now that of the key.</param>
public readonly record struct IncrementResult(long Number, ShardPosition Position);

/// <summary>The answer to a touch.</summary>
/// <param name="Existed">Whether the key exists.</param>
/// <param name="Position">The change's position in its shard.</param>
public readonly record struct TouchResult(bool Existed, ShardPosition Position);

/// <summary>The answer to a delete of a range.</summary>
/// <param name="Deleted">The number of keys removed.</param>
/// <param name="Position">The position of the last change.</param>
public readonly record struct DeleteRangeResult(ulong Deleted, ShardPosition Position);

/// <summary>The answer to a transaction.</summary>
/// <param name="Succeeded">Whether all conditions held.</param>
/// <param name="FailedCondition">Otherwise the index of the first one that did not.</param>
/// <param name="Results">One for each operation of the list that was applied, in order.</param>
/// <param name="Position">The position of its last operation in the shard, or of the state that it read.</param>
public sealed record TransactResult(bool Succeeded, int? FailedCondition, IReadOnlyList<OperationResult> Results, ShardPosition Position);

/// <summary>The answer to a delete.</summary>
/// <param name="Existed">Whether the key existed.</param>
/// <param name="Position">The change's position in its shard.</param>
public readonly record struct DeleteResult(bool Existed, ShardPosition Position);

/// <summary>The answer to a write.</summary>
/// <param name="Position">The position of its last operation in the shard.</param>
/// <param name="Deleted">The number of keys that its deletes removed.</param>
/// <param name="Results">One for each operation, in order, if <see cref="KvWrite.WithResults"/> asked for them; otherwise empty.</param>
public sealed record WriteResult(ShardPosition Position, long Deleted, IReadOnlyList<OperationResult> Results);

/// <summary>What one operation of a write or transaction did.</summary>
/// <param name="Etag">The etag of its change; for a put now that of the key. All zero for a read.</param>
/// <param name="Existed">For a delete or touch whether the key existed; for a set whether it had the member; otherwise null.</param>
public readonly record struct OperationResult(Etag Etag, bool? Existed)
{
    /// <summary>
    /// Of an increment the number afterwards, of a delete of a range the number of keys removed, of a set its number of members; otherwise null.
    /// </summary>
    public long? Number { get; init; }

    /// <summary>What a read found, and the new key of a put with a sequence.</summary>
    public IReadOnlyList<KvEntry> Entries { get; init; } = [];

    /// <summary>Of a scan: more entries follow.</summary>
    public bool More { get; init; }

    internal static OperationResult Of(V1.OperationResult message) => new(message.Etag.ToEtag(), message.HasExisted ? message.Existed : null)
    {
        Number = message.HasNumber ? message.Number : null,
        Entries = [.. message.Entries.Select(Bytes.ToEntry)],
        More = message.More,
    };
}

/// <summary>The shard that answered, and the state that the answer was evaluated on.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Etag">The newest etag of that state; for a change, its own etag.</param>
public readonly record struct ShardPosition(uint Shard, Etag Etag)
{
    /// <summary>
    /// Names the history of the data that the etag belongs to: the first 8 bytes of the cluster's lineage. 0 if not known. A restored cluster has another one,
    /// in which the etag means nothing.
    /// </summary>
    public ulong Lineage { get; init; }
}
