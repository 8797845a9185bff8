using KvCluster.Storage.Context;
using KvCluster.Storage.Sessions;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The one queue through which answers leave that depend on state: in etag order, each after the state it was evaluated on is
/// published. Answers that are reads (failed conditions that are in no record, requests without operations, refusals of sessions) wait besides until the
/// owner may answer reads.
/// Writer executor.
/// </summary>
internal sealed class PendingAnswers(AnswerChain chain)
{
    private readonly Queue<WriteRequest> _waiting = new();
    private readonly Queue<WriteRequest> _heldReads = new();

    /// <summary>How many reads were held since the store was opened: names the last one held by now.</summary>
    public long HeldCount { get; private set; }

    /// <summary>Adds a request whose <see cref="WriteRequest.Result"/> is set, and with it what its answer waits for.</summary>
    public void Add(WriteRequest request) => _waiting.Enqueue(request);

    /// <summary>Lets answers go up to a published etag; reads only if <paramref name="owner"/> may answer them, otherwise they are held.</summary>
    public void Publish(UInt128 published, IStoreEvents owner)
    {
        bool? mayAnswerReads = null;
        while (_waiting.TryPeek(out var request) && request.ReleaseEtag <= published)
        {
            _waiting.Dequeue();
            if (request.IsReadAnswer && !(mayAnswerReads ??= owner.MayAnswerReads()))
            {
                _heldReads.Enqueue(request);
                HeldCount++;
            }
            else
                chain.Add(request);
        }
        chain.Flush();
    }

    /// <summary>Lets held reads go, the first <paramref name="heldCount"/> of all that were ever held: later ones were not covered by what confirmed these.</summary>
    public void ReleaseReads(long heldCount)
    {
        while (HeldCount - _heldReads.Count < heldCount && _heldReads.TryDequeue(out var request))
            chain.Add(request);
        chain.Flush();
    }

    /// <summary>Ends all: what was appended with <paramref name="appended"/>, reads and failed conditions with <paramref name="read"/>.</summary>
    public void End(WriteOutcome appended, WriteOutcome read)
    {
        while (_waiting.TryDequeue(out var request))
            chain.Add(request, WriteResult.Of(request.IsReadAnswer || request.Result.Outcome == WriteOutcome.ConditionFailed ? read : appended));
        while (_heldReads.TryDequeue(out var request))
            chain.Add(request, WriteResult.Of(read));
        chain.Flush();
    }
}
