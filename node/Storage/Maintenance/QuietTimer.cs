using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Notices that no record has arrived for a while although much is left to replay, so that a checkpoint can be written early. Runs only while much is
/// left. Owned by <see cref="CheckpointSchedule"/>; writer executor.
/// </summary>
internal sealed class QuietTimer : IDisposable
{
    private readonly StoreContext _context;
    private readonly CheckpointBacklog _backlog;
    private readonly Action _isQuiet;
    private readonly WorkAction _look;
    private ITimer? _timer;
    private long _journalBytesBefore;
    private bool _hasEnded;

    /// <summary>Creates the timer without starting it.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="backlog">What is left to replay.</param>
    /// <param name="isQuiet">Called on the writer executor.</param>
    public QuietTimer(StoreContext context, CheckpointBacklog backlog, Action isQuiet)
    {
        (_context, _backlog, _isQuiet) = (context, backlog, isQuiet);
        _look = new WorkAction(Look);
    }

    /// <summary>Called when the backlog has grown.</summary>
    public void Grew()
    {
        if (_timer is null && _backlog.IsMuchToReplay)
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
        _journalBytesBefore = _backlog.JournalBytes;
        _timer?.Dispose();
        _timer = _context.Time.CreateTimer(_ => _context.Writer.Post(_look), null, _context.Options.CheckpointIdleTime, Timeout.InfiniteTimeSpan);
    }

    private void Look()
    {
        if (_hasEnded)
            return;
        if (_backlog.IsMuchToReplay && _backlog.JournalBytes == _journalBytesBefore)
            _isQuiet();
        // The callback may have ended the store.
        if (!_hasEnded && _backlog.IsMuchToReplay)
        {
            Restart();
            return;
        }
        _timer?.Dispose();
        _timer = null;
    }
}
