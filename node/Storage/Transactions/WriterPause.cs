using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The pause after a step that changes the trees, while checkpoints are behind or memory is short. It grows with the lag, so that writers slow down gradually
/// and are not stopped. Writer executor.
/// </summary>
internal sealed class WriterPause : IDisposable
{
    /// <summary>The longest pause. Ten batches of up to 1 MiB a second are less than any disk can write.</summary>
    private static readonly TimeSpan PauseMax = TimeSpan.FromMilliseconds(100);

    private static readonly TimeSpan PauseMin = TimeSpan.FromMilliseconds(1);

    private readonly StoreContext _context;
    private readonly Action _ended;
    private readonly WorkAction _end;
    private ITimer? _timer;

    /// <summary>The writer does not pause yet.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="ended">Called on the writer executor when a pause is over.</param>
    public WriterPause(StoreContext context, Action ended) => (_context, _ended, _end) = (context, ended, new WorkAction(End));

    /// <summary>Whether a pause is under way.</summary>
    public bool IsActive { get; private set; }

    /// <summary>Begins a pause, unless nothing is behind.</summary>
    /// <param name="behind">How far checkpoints are behind, from 0 to 1.</param>
    /// <param name="forMemory">The pause that the memory of the step costs.</param>
    public void Begin(double behind, TimeSpan forMemory)
    {
        var pause = behind * PauseMax;
        pause = forMemory > pause ? forMemory : pause;
        // Timers are no finer than this.
        if (pause < PauseMin)
            return;
        IsActive = true;
        _timer ??= _context.Time.CreateTimer(_ => _context.Writer.Post(_end), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        _timer.Change(pause, Timeout.InfiniteTimeSpan);
    }

    /// <summary>No pause ends any more.</summary>
    public void Dispose() => _timer?.Dispose();

    private void End()
    {
        if (!IsActive)
            return;
        IsActive = false;
        _ended();
    }
}
