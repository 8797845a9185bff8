using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// Where callers' requests enter a store. <see cref="RequestQueue.TryAdd"/> decides who is refused because too many wait: at the bounds of the store, and at
/// that of the node, <see cref="MemoryAccount.MayWait"/>. Before that a server has limited its open calls (<c>OpenCallLimit</c>). While this replica leads,
/// requests are queued for <see cref="GroupCommit"/>, and the owner is told; otherwise they are refused. Owned by a store; writer executor, unless a member
/// says otherwise.
/// </summary>
internal sealed class RequestAdmission
{
    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly RecordLog _log;
    private readonly FullDiskWatch _space;
    private readonly Action _tellWork;
    private IStoreEvents? _events;

    /// <summary>Refuses requests while the log has no own epoch.</summary>
    /// <param name="context">The shard's executors and bounds.</param>
    /// <param name="life">Requests are refused when the store has ended.</param>
    /// <param name="log">Knows whether this replica leads.</param>
    /// <param name="space">Requests are refused while records wait for space.</param>
    /// <param name="prefetch">Reads what the requests will change; null: nobody does.</param>
    public RequestAdmission(StoreContext context, StoreLifecycle life, RecordLog log, FullDiskWatch space, PathPrefetch? prefetch)
    {
        (_context, _life, _log, _space, Prefetch) = (context, life, log, space, prefetch);
        _tellWork = () => _events!.WorkQueued();
        Answers = new AnswerChain(context.Completions);
        Queue = new RequestQueue(
            context.Options.QueueCountMax, context.Options.QueueBytesMax, context.Memory, context.Writer, new WorkAction(OnQueueNotice), prefetch);
    }

    /// <summary>The requests that wait for the writer.</summary>
    public RequestQueue Queue { get; }

    /// <summary>Reads what requests will change; null: nobody does.</summary>
    public PathPrefetch? Prefetch { get; }

    /// <summary>Passes answered requests to their callers.</summary>
    public AnswerChain Answers { get; }

    /// <summary>Sets the owner, once.</summary>
    public void Start(IStoreEvents events) => _events = events;

    /// <summary>
    /// Queues a request. Returns false at once when the queue is full, or those of all the node's stores are; the request then still belongs to the caller. A
    /// store that does not lead or has stopped answers with that outcome. Any thread.
    /// </summary>
    public bool TrySubmit(WriteRequest request)
    {
        request.ComputeDigest();
        if (!Queue.TryAdd(request))
            return false;
        // A store that has stopped takes no notice of its queue any more, so this request is answered here.
        if (_life.IsStopped)
            Refuse(new AnswerChain(_context.Completions), static _ => WriteOutcome.Stopped);
        return true;
    }

    /// <summary>Answers all queued requests with this outcome.</summary>
    public void Refuse(WriteOutcome outcome) => Refuse(Answers, _ => outcome);

    /// <summary>Answers all queued requests because records wait for space.</summary>
    public void RefuseOnFullDisk() => Refuse(Answers, static request => request.OutcomeOnFullDisk);

    private void Refuse(AnswerChain answers, Func<WriteRequest, WriteOutcome> outcomeOf)
    {
        Queue.Release();
        while (Queue.TryTake(out var request))
            answers.Add(request, WriteResult.Of(outcomeOf(request)));
        answers.Flush();
    }

    private void OnQueueNotice()
    {
        Queue.AcknowledgeNotice();
        if (_life.HasEnded)
            Refuse(WriteOutcome.Stopped);
        else if (_log.OwnEpoch is null)
            Refuse(WriteOutcome.NotLeader);
        else if (_space.IsStalled)
            RefuseOnFullDisk();
        else
            _life.Guard(_tellWork);
    }
}
