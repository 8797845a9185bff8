using KvCluster.Storage.Context;
using KvCluster.Storage.Sessions;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The only queue for answers that depend on state. They leave in etag order, each after the state it was evaluated on is published. Read answers (failed
/// conditions that are in no record, requests without operations, refusals of sessions) also wait until the owner may answer reads. Writer executor.
/// </summary>
internal sealed class PendingAnswers(AnswerChain chain)
{
    private readonly Queue<WriteRequest> _waiting = new();
    private readonly Queue<WriteRequest> _heldReads = new();

    /// <summary>How many reads were held since the store was opened. This identifies the last one held so far.</summary>
    public long HeldCount { get; private set; }

    /// <summary>Adds a request whose <see cref="WriteRequest.Result"/> and release conditions are set.</summary>
    public void Add(WriteRequest request) => _waiting.Enqueue(request);

    /// <summary>
    /// Releases answers up to a published etag. Reads are released only if <paramref name="owner"/> may answer them; otherwise they are held.
    /// </summary>
    public void Publish(Etag published, IStoreEvents owner)
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
        chain.Flush(mayWait: true);
    }

    /// <summary>
    /// Releases held reads, up to the first <paramref name="heldCount"/> of all that were ever held. The confirmation does not cover later ones.
    /// </summary>
    public void ReleaseReads(long heldCount)
    {
        while (HeldCount - _heldReads.Count < heldCount && _heldReads.TryDequeue(out var request))
            chain.Add(request);
        chain.Flush();
    }

    /// <summary>Ends all requests: appended ones with <paramref name="appended"/>, reads and failed conditions with <paramref name="read"/>.</summary>
    public void End(WriteOutcome appended, WriteOutcome read)
    {
        while (_waiting.TryDequeue(out var request))
            chain.Add(request, WriteResult.Of(request.IsReadAnswer || request.Result.Outcome == WriteOutcome.ConditionFailed ? read : appended));
        while (_heldReads.TryDequeue(out var request))
            chain.Add(request, WriteResult.Of(read));
        chain.Flush();
    }
}
