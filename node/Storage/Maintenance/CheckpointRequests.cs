using System.Collections.Concurrent;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Callers that wait for a checkpoint, each for one that covers what was published when the writer took the request. Added on any thread; writer executor
/// otherwise. When the store stops, requests wait until another store takes them over or they are refused.
/// </summary>
internal sealed class CheckpointRequests
{
    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly Action _arrived;
    private readonly WorkAction _take;
    private readonly ConcurrentQueue<TaskCompletionSource<CheckpointPosition>> _added = new();
    private readonly List<(Etag Etag, TaskCompletionSource<CheckpointPosition> Request)> _waiting = [];

    /// <summary>The store has stopped, and requests wait for another one.</summary>
    private bool _areKept;

    /// <summary>Why requests are refused; null while they are not.</summary>
    private Exception? _refusal;

    /// <summary>Nobody waits yet.</summary>
    /// <param name="context">The shard's executors.</param>
    /// <param name="pages">Knows what is published and what is covered.</param>
    /// <param name="arrived">Called on the writer executor when requests arrived that can be served.</param>
    public CheckpointRequests(StoreContext context, PageStore pages, Action arrived)
    {
        (_context, _pages, _arrived) = (context, pages, arrived);
        _take = new WorkAction(Take);
    }

    /// <summary>Whether anybody waits.</summary>
    public bool Any => _waiting.Count > 0;

    /// <summary>Adds a request. Any thread.</summary>
    public Task<CheckpointPosition> AddAsync()
    {
        var request = new TaskCompletionSource<CheckpointPosition>(TaskCreationOptions.RunContinuationsAsynchronously);
        _added.Enqueue(request);
        _context.Writer.Post(_take);
        return request.Task;
    }

    /// <summary>Answers each request as soon as what it asked for is covered. Under load there is always something newer to cover.</summary>
    public void AnswerCovered()
    {
        var covered = _pages.Covered;
        foreach (var (etag, request) in _waiting)
        {
            if (etag <= covered.Etag)
                request.SetResult(covered);
        }
        _waiting.RemoveAll(waiting => waiting.Etag <= covered.Etag);
    }

    /// <summary>Fails those that wait, and no later ones.</summary>
    public void Fail(Exception reason)
    {
        foreach (var (_, request) in _waiting)
            request.SetException(reason);
        _waiting.Clear();
    }

    /// <summary>Keeps the requests for another store, unless they are refused.</summary>
    public void Keep()
    {
        _areKept = _refusal is null;
        Take();
    }

    /// <summary>Fails those that wait and all later ones.</summary>
    public void Refuse(Exception reason)
    {
        (_areKept, _refusal) = (false, reason);
        Take();
    }

    /// <summary>Takes over the requests of the store that this one replaces, which has nothing newer.</summary>
    public void TakeOver(CheckpointRequests before)
    {
        foreach (var (_, request) in before._waiting)
            _added.Enqueue(request);
        before._waiting.Clear();
        while (before._added.TryDequeue(out var request))
            _added.Enqueue(request);
        before._areKept = false;
        before._refusal ??= new StoreStoppedException(null);
        if (!_added.IsEmpty)
            _context.Writer.Post(_take);
    }

    private void Take()
    {
        while (_added.TryDequeue(out var request))
            _waiting.Add((_pages.Roots.PublishedEtag, request));
        if (_refusal is not null)
            Fail(_refusal);
        else if (!_areKept && _waiting.Count > 0)
            _arrived();
    }
}
