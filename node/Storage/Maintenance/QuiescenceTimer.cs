using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Notices that a store has been quiescent for a while although something is left to do then, such as a checkpoint, so that a restart has little to replay.
/// Runs only while something is left. Writer executor.
/// </summary>
internal sealed class QuiescenceTimer : IDisposable
{
    private readonly StoreContext _context;
    private readonly Func<bool> _isWanted;
    private readonly Func<long> _progress;
    private readonly Action _isQuiescent;
    private readonly IWorkItem _look;
    private ITimer? _timer;
    private long _progressBefore;
    private bool _hasEnded;

    /// <summary>Creates the timer without starting it.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="life">Ended by a failure.</param>
    /// <param name="isWanted">Whether something is left to do.</param>
    /// <param name="progress">A number that changes while the store is not idle.</param>
    /// <param name="isQuiescent">Called on the writer executor, again and again as long as something is left.</param>
    public QuiescenceTimer(StoreContext context, StoreLifecycle life, Func<bool> isWanted, Func<long> progress, Action isQuiescent)
    {
        (_context, _isWanted, _progress, _isQuiescent) = (context, isWanted, progress, isQuiescent);
        _look = life.Guarded(Look);
    }

    /// <summary>Called when the store has done something.</summary>
    public void Changed()
    {
        if (_timer is null && !_hasEnded && _isWanted())
            Restart();
    }

    /// <summary>Stops it for good.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _timer?.Dispose();
    }

    private void Restart()
    {
        _progressBefore = _progress();
        _timer?.Dispose();
        _timer = _context.Time.CreateTimer(_ => _context.Writer.Post(_look), null, _context.Options.CheckpointQuiescentTime, Timeout.InfiniteTimeSpan);
    }

    private void Look()
    {
        if (_hasEnded)
            return;
        if (_isWanted() && _progress() == _progressBefore)
            _isQuiescent();
        // The callback may have ended the store.
        if (!_hasEnded && _isWanted())
        {
            Restart();
            return;
        }
        _timer?.Dispose();
        _timer = null;
    }
}
