namespace KvCluster.Node.Coordination;

/// <summary>The outcome of one compare-and-set on a shard's record.</summary>
internal enum CompareAndSetOutcome
{
    /// <summary>The record is now ours, at the revision answered.</summary>
    Won,

    /// <summary>The record had another revision; nothing was changed.</summary>
    Lost,

    /// <summary>It may or may not have happened, or may still happen. Settled only by reading or repeating the same compare.</summary>
    Unknown,
}

/// <summary>Answer to a compare-and-set. <paramref name="Revision"/> is the new mod revision when won.</summary>
internal readonly record struct CompareAndSetResult(CompareAndSetOutcome Outcome, long Revision);
