using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Computes the digest of one published state while the shard keeps working, in steps on the checkpoint executor with a pause after each. Created and
/// disposed on the writer executor. It gives up before it keeps too much memory from being reused. A damaged page or any other failure stops the engine.
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

    /// <summary>Starts the computation.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="pages">The store to read.</param>
    /// <param name="done">Called on the writer executor, once, unless this is disposed before. Receives the digest, or null if it gave up.</param>
    /// <param name="fail">Called on the writer executor with a failure.</param>
    /// <exception cref="SnapshotLimitException">The limit of open snapshots is reached.</exception>
    public BackgroundDigest(StoreContext context, PageStore pages, Action<byte[]?> done, Action<Exception> fail)
    {
        _context = context;
        _done = done;
        _fail = fail;
        _snapshot = pages.Roots.OpenSnapshot(forDigest: true);
        _digest = new TreeDigest(_snapshot);
        _step = new WorkAction(Step);
        _rest = context.Time.CreateTimer(_ => context.Checkpoints.Post(_step), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        context.Checkpoints.Post(_step);
    }

    /// <summary>Stops the computation: no further step begins, and <c>done</c> is not called. The snapshot is closed after a step that is running.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _rest.Dispose();
        _context.Checkpoints.Post(new WorkAction(Release));
    }

    /// <summary>Closes the snapshot, once. Called on the checkpoint executor, or when that no longer runs anything of this store.</summary>
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
            // Pages that no later state shares are kept only for this snapshot.
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
