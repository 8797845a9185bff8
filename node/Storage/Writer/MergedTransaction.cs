using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Writer;

/// <summary>
/// Merges waiting requests into one transaction: each request's conditions are evaluated on the newest state, that of the requests
/// before it in the same transaction included. One that fails takes nothing with it. Writer executor.
/// </summary>
internal sealed class MergedTransaction(RequestQueue queue, AnswerChain chain, PendingAnswers answers, TimeProvider time)
{
    private const int PayloadBytesKept = 2 << 20;
    private readonly ByteBuffer _payload = new(64 << 10);
    private int _operationCount;

    /// <summary>Operations collected.</summary>
    public int OperationCount => _operationCount;

    /// <summary>Their encoding.</summary>
    public ReadOnlySpan<byte> Payload => _payload.Written;

    /// <summary>Applies waiting requests to a batch until none waits or the payload has <paramref name="bytesMax"/>.</summary>
    /// <param name="batch">On the newest root.</param>
    /// <param name="etagLast">The newest etag before.</param>
    /// <param name="etagFirst">What the first operation gets.</param>
    /// <param name="bytesMax">Where the transaction closes.</param>
    /// <param name="recordBytesLeft">The disk is full: puts are refused, and what does not fit into so many bytes. Otherwise null.</param>
    public void Collect(WriteBatch batch, UInt128 etagLast, UInt128 etagFirst, int bytesMax, long? recordBytesLeft)
    {
        _payload.Clear(PayloadBytesKept);
        _operationCount = 0;
        var next = etagFirst;
        var now = time.GetTimestamp();
        while (_payload.Count < bytesMax && queue.TryTake(out var request))
        {
            if (request.DeadlineTimestamp != 0 && request.DeadlineTimestamp < now)
                chain.Add(request, WriteResult.Of(WriteOutcome.DeadlinePassed));
            else if (recordBytesLeft is { } left && (request.HasPut || RecordBytesWith(request) > left))
                chain.Add(request, WriteResult.Of(WriteOutcome.DiskFull));
            else
                Apply(batch, request, _operationCount == 0 ? etagLast : next - 1, ref next);
        }
        chain.Flush();
    }

    private int RecordBytesWith(WriteRequest request) =>
        RecordEnvelope.RecordBytes(RecordBody.HeaderBytes + _payload.Count + request.EncodedOperations.Length + RecordBody.TrailerBytes);

    private void Apply(WriteBatch batch, WriteRequest request, UInt128 newest, ref UInt128 next)
    {
        if (FindFailedCondition(batch, request.EncodedConditions) is >= 0 and var failed)
        {
            request.Result = new WriteResult(WriteOutcome.ConditionFailed, newest, failed, false);
        }
        else if (request.OperationCount == 0)
        {
            request.Result = new WriteResult(WriteOutcome.Applied, newest, -1, false);
        }
        else
        {
            var existed = RecordApplier.ApplyOperations(batch, request.EncodedOperations, ref next, ref _operationCount);
            _payload.Append(request.EncodedOperations);
            request.Result = new WriteResult(WriteOutcome.Applied, next - 1, -1, existed);
        }
        answers.Add(request);
    }

    private static int FindFailedCondition(WriteBatch batch, ReadOnlySpan<byte> conditions)
    {
        var reader = new ConditionReader(conditions);
        for (var index = 0; reader.MoveNext(); index++)
        {
            if (!Holds(batch, reader))
                return index;
        }
        return -1;
    }

    private static bool Holds(WriteBatch batch, in ConditionReader condition)
    {
        if (!batch.TryGet(TreeId.Kv, condition.Key, out var stored))
            return condition.Kind == ConditionKind.Absent || (condition.Kind == ConditionKind.EtagEquals && condition.Etag == 0);
        var value = KvValue.Read(stored, out var etag);
        return condition.Kind switch
        {
            ConditionKind.EtagEquals => condition.Etag == etag,
            ConditionKind.Exists => true,
            ConditionKind.ValueEquals => condition.Value.SequenceEqual(value),
            _ => false,
        };
    }
}
