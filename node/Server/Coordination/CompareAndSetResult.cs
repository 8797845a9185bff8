namespace KvCluster.Node.Coordination;

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
