using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Sessions;

/// <summary>A request's result, apart from its etag, as records and the tree store it (FORMAT.md, "Results"). Pure; any thread.</summary>
/// <param name="Kind">How the request ended.</param>
/// <param name="Number">Of a failed condition the index; of a request that has deleted keys, twice their number, plus 1 if some of its range are left.</param>
internal readonly record struct StoredResult(ResultKind Kind, uint Number)
{
    /// <summary>Bits of the kind, below a number.</summary>
    public const int KindBits = 3;

    /// <summary>The bits of the kind.</summary>
    public const uint KindMask = (1u << KindBits) - 1;

    /// <summary>The most bytes that <see cref="WriteKept"/> writes before the results of the operations.</summary>
    private const int KeptHeaderBytesMax = 2 * Varint.BytesMax;

    private const uint NumberMax = uint.MaxValue >> KindBits;

    /// <summary>What is stored of a result.</summary>
    public static StoredResult Of(in WriteResult result) => result switch
    {
        { Results: not null } => new StoredResult(ResultKind.WithResults, 0),
        { Outcome: WriteOutcome.ConditionFailed } => new StoredResult(ResultKind.ConditionFailed, (uint)result.FailedCondition),
        { Existed: true } => new StoredResult(ResultKind.AppliedToExisting, ((uint)result.Deleted << 1) | (result.IsPartial ? 1u : 0)),
        _ => new StoredResult(ResultKind.Applied, 0),
    };

    /// <summary>The most bytes of what is kept of a result with those of its operations; 0 if it has none.</summary>
    public static int KeptBytesMax(in WriteResult result) => result.Results is { } results ? KeptHeaderBytesMax + results.Length : 0;

    /// <summary>Appends what is kept of a result with those of its operations (FORMAT.md, "Results of operations").</summary>
    public static void WriteKept(ByteBuffer content, in WriteResult result)
    {
        content.AppendNumber((ulong)(result.FailedCondition + 1));
        content.AppendNumber(((ulong)result.Deleted << 1) | (result.IsPartial ? 1u : 0));
        content.Append(result.Results);
    }

    /// <summary>Reads what <see cref="WriteKept"/> has written.</summary>
    /// <exception cref="CorruptStoreException">What is kept is malformed.</exception>
    public static WriteResult ReadKept(ReadOnlySpan<byte> kept, Etag etag)
    {
        if (!Varint.TryRead(ref kept, out var failed) || !Varint.TryRead(ref kept, out var deleted) || failed > int.MaxValue || deleted > uint.MaxValue)
            throw new CorruptStoreException("What is kept of a request's results is malformed.");
        return new WriteResult(WriteOutcome.Applied, etag, (int)failed - 1, (int)(deleted >> 1), (deleted & 1) != 0) { Results = kept.ToArray() };
    }

    /// <summary>The result, with its etag, unless what else it has is kept apart.</summary>
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
    /// <summary>The request has no result yet.</summary>
    None = 0,

    /// <summary>Applied.</summary>
    Applied = 1,

    /// <summary>Applied, and keys that it deletes existed.</summary>
    AppliedToExisting = 2,

    /// <summary>A condition did not hold.</summary>
    ConditionFailed = 3,

    /// <summary>Applied, with a result for each operation, which are kept apart.</summary>
    WithResults = 4,
}
