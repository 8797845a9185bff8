namespace KvCluster.Storage;

/// <summary>The answer to a <see cref="WriteRequest"/>.</summary>
/// <param name="Outcome">How it ended.</param>
/// <param name="Etag">Applied: the etag of its last operation. Failed condition: the newest etag it was evaluated on.</param>
/// <param name="FailedCondition">Index of the first condition that did not hold; -1 if none.</param>
/// <param name="Existed">Applied: whether a key that it deletes was there.</param>
internal readonly record struct WriteResult(WriteOutcome Outcome, UInt128 Etag, int FailedCondition, bool Existed)
{
    /// <summary>An answer that says no more than its outcome.</summary>
    public static WriteResult Of(WriteOutcome outcome) => new(outcome, default, -1, false);
}
