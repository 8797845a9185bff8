using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Computes the digest of one published state while the shard goes on: in steps on the checkpoint executor, with a rest behind each. Begun and ended on
/// the writer executor. It gives up rather than keep too much memory from being reused. A bad page, or whatever else goes wrong, ends the engine.
/// </summary>
internal sealed class BackgroundDigest : IDisposable
{
    private readonly StoreContext _context;
    private readonly Action<byte[]?> _done;
    private readonly Action<Exception> _fail;
    private readonly ReadSnapshot _snapshot;
    private readonly TreeDigest _digest;
    private readonly WorkAction _step;
    private readonly ITimer _rest;
    private volatile bool _hasEnded;
    private bool _isReleased;

    /// <summary>Begins.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="pages">What is read.</param>
    /// <param name="done">Told on the writer executor, once unless it is disposed before: the digest; null: it gave up.</param>
    /// <param name="fail">Told on the writer executor what ended it.</param>
    /// <exception cref="SnapshotLimitException">As many are open as may be.</exception>
    public BackgroundDigest(StoreContext context, PageStore pages, Action<byte[]?> done, Action<Exception> fail)
    {
        _context = context;
        _done = done;
        _fail = fail;
        _snapshot = pages.OpenSnapshot();
        _digest = new TreeDigest(_snapshot);
        _step = new WorkAction(Step);
        _rest = context.Time.CreateTimer(_ => context.Checkpoints.Post(_step), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        context.Checkpoints.Post(_step);
    }

    /// <summary>No step begins any more, and <c>done</c> is not called. The snapshot is closed behind a step that runs.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _rest.Dispose();
        _context.Checkpoints.Post(new WorkAction(Release));
    }

    /// <summary>Closes the snapshot, once. On the checkpoint executor, or when that runs nothing of this store any more.</summary>
    public void Release()
    {
        if (_isReleased)
            return;
        _isReleased = true;
        _digest.Dispose();
        _snapshot.Dispose();
    }

    private void Step()
    {
        if (_hasEnded)
            return;
        try
        {
            // The pages that this state shares with no later one are kept for it alone.
            if (_snapshot.IsTooOld)
            {
                Tell(null);
                return;
            }
            var began = _context.Time.GetTimestamp();
            if (_digest.Step(TreeDigest.StepBytes) is { } whole)
                Tell(whole);
            else
                _rest.Change(_context.DigestPace.RestAfter(_context.Time, began, TreeDigest.StepBytes), Timeout.InfiniteTimeSpan);
        }
        catch (Exception failure)
        {
            _context.Writer.Post(new WorkAction(() => _fail(failure)));
        }
    }

    private void Tell(byte[]? digest) => _context.Writer.Post(new WorkAction(() =>
    {
        if (!_hasEnded)
            _done(digest);
    }));
}
