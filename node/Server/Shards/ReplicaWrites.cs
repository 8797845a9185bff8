using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Loop;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Node.Shards;

/// <summary>Writes of a replica's callers. Any thread.</summary>
/// <param name="journal">Provides the current store.</param>
/// <param name="published">Whether this replica serves.</param>
/// <param name="life">Whether it has failed.</param>
internal sealed class ReplicaWrites(ReplicaJournalView journal, PublishedState published, ReplicaLife life)
{
    /// <summary>
    /// Submits a write. The task ends when the write is committed and published, or certainly not applied, or when its outcome cannot be known. The
    /// request belongs to the store meanwhile and returns to its pool by itself. Never waits for space in the queue.
    /// </summary>
    /// <param name="request">The request.</param>
    /// <param name="held">Tells the writer later, together with other requests of the same caller; null: it is told at once.</param>
    public ValueTask<WriteResult> SubmitAsync(WriteRequest request, HeldNotices? held = null)
    {
        if (!published.IsServing)
            return Refuse(request, life.Failure is null ? WriteOutcome.NotLeader : WriteOutcome.Stopped);
        var completion = request.Completion;
        return journal.Store.Requests.TrySubmit(request, held) ? completion : Refuse(request, WriteOutcome.Busy);
    }

    private static ValueTask<WriteResult> Refuse(WriteRequest request, WriteOutcome outcome)
    {
        request.Return();
        return ValueTask.FromResult(WriteResult.Of(outcome));
    }
}
