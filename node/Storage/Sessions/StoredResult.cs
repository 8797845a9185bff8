using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Sessions;

/// <summary>A request's result, apart from its etag, as records and the tree store it (FORMAT.md, "Results"). Pure; any thread.</summary>
/// <param name="Kind">How the request ended.</param>
/// <param name="Number">Of a failed condition the index; of a request that has deleted keys, twice their number, plus 1 if some of its range are left.</param>
internal readonly record struct StoredResult(ResultKind Kind, uint Number)
{
    /// <summary>Bits of a number above those of the kind.</summary>
    public const int KindBits = 2;

    private const uint NumberMax = uint.MaxValue >> KindBits;

    /// <summary>What is stored of a result.</summary>
    public static StoredResult Of(in WriteResult result) => result switch
    {
        { Outcome: WriteOutcome.ConditionFailed } => new StoredResult(ResultKind.ConditionFailed, (uint)result.FailedCondition),
        { Existed: true } => new StoredResult(ResultKind.AppliedToExisting, ((uint)result.Deleted << 1) | (result.IsPartial ? 1u : 0)),
        _ => new StoredResult(ResultKind.Applied, 0),
    };

    /// <summary>The result, with its etag.</summary>
    /// <exception cref="CorruptStoreException">There is no such kind, or the number is too large for it.</exception>
    public WriteResult At(Etag etag) => Kind switch
    {
        ResultKind.Applied => new WriteResult(WriteOutcome.Applied, etag, -1, 0),
        ResultKind.AppliedToExisting when Number <= NumberMax => new WriteResult(WriteOutcome.Applied, etag, -1, (int)(Number >> 1), (Number & 1) != 0),
        ResultKind.ConditionFailed when Number <= NumberMax => new WriteResult(WriteOutcome.ConditionFailed, etag, (int)Number, 0),
        _ => throw new CorruptStoreException($"A stored result of kind {(byte)Kind} with the number {Number} is not valid."),
    };
}

/// <summary>How an identified request ended, as stored in records and in the tree.</summary>
internal enum ResultKind : byte
{
    /// <summary>It has no result yet.</summary>
    None = 0,

    /// <summary>Applied.</summary>
    Applied = 1,

    /// <summary>Applied, and keys that it deletes existed.</summary>
    AppliedToExisting = 2,

    /// <summary>A condition did not hold.</summary>
    ConditionFailed = 3,
}
