namespace KvCluster.Node.Coordination;

/// <summary>The result of reading one key.</summary>
/// <param name="Value">The value; null if the key is absent.</param>
/// <param name="ModRevision">Revision of the change that set it; 0 if absent.</param>
/// <param name="Revision">Revision of the store at the read.</param>
internal readonly record struct CoordinatorRead(string? Value, long ModRevision, long Revision);

/// <summary>The result of a list: entries in key order, all at one revision of the store.</summary>
internal sealed record CoordinatorList(IReadOnlyList<CoordinatorChange> Entries, long Revision);

/// <summary>A key's value as of a revision.</summary>
/// <param name="Value">The value; null if the key was deleted.</param>
/// <param name="ModRevision">Revision of the change.</param>
internal readonly record struct CoordinatorChange(string Key, string? Value, long ModRevision);

/// <summary>The outcome of one compare-and-set on a shard's record.</summary>
internal enum CompareAndSetOutcome
{
    /// <summary>The record is the one that was put, at the returned revision.</summary>
    Won,

    /// <summary>The record had another revision; nothing was changed.</summary>
    Lost,

    /// <summary>It may have happened, or may still happen. Only a read, or repeating the same compare-and-set, settles it.</summary>
    Unknown,
}

/// <summary>The result of a compare-and-set. <paramref name="Revision"/> is the new mod revision when won.</summary>
internal readonly record struct CompareAndSetResult(CompareAndSetOutcome Outcome, long Revision);
