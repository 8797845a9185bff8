using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Looks for space once a second while the disk is full: it starts a checkpoint, which frees journal segments, and has the journal try again. Owned by a
/// store; writer executor.
/// </summary>
internal sealed class SpaceWatch : IDisposable
{
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(1);
    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly JournalWriter _journal;
    private readonly SpaceReserve _reserve;
    private readonly CheckpointSchedule _checkpoints;
    private readonly Action _stalled;
    private readonly WorkAction _look;
    private ITimer? _timer;

    /// <summary>Watches nothing before <see cref="Start"/> or <see cref="Watch"/>.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="life">Nothing is begun when the store has ended.</param>
    /// <param name="journal">May find no space for a record.</param>
    /// <param name="reserve">Renewed when there is space again.</param>
    /// <param name="checkpoints">May find no space for a page, and free journal segments.</param>
    /// <param name="stalled">Called when the disk is found full and records wait for space.</param>
    public SpaceWatch(StoreContext context, StoreLifecycle life, JournalWriter journal, SpaceReserve reserve, CheckpointSchedule checkpoints, Action stalled)
    {
        (_context, _life, _journal, _reserve, _checkpoints, _stalled) = (context, life, journal, reserve, checkpoints, stalled);
        _look = new WorkAction(Look);
    }

    /// <summary>
    /// Whether there is no space for a segment or a checkpoint. Puts are then refused and a follower's records wait. Space is looked for once a second.
    /// Any thread.
    /// </summary>
    public bool IsDiskFull => _journal.IsDiskFull || _checkpoints.IsDiskFull;

    /// <summary>Whether records wait for space. Any thread.</summary>
    public bool IsStalled => _journal.IsStalled;

    /// <summary>How many bytes of records are certain to fit on a full disk; null while there is space.</summary>
    /// <param name="inFlight">Bytes of records that are on their way there.</param>
    public long? BytesLeft(long inFlight) => IsDiskFull ? _journal.BytesLeft - inFlight : null;

    /// <summary>Called once, when the owner is set.</summary>
    public void Start()
    {
        // The reserve was released earlier or never complete, or opening found the disk full and continued without it.
        if (!_reserve.IsHeld || IsDiskFull)
            _journal.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
    }

    /// <summary>Called whenever the disk may have become full; looks for space at intervals until it is not.</summary>
    public void Watch()
    {
        if (_life.HasEnded || _timer is not null || !IsDiskFull)
            return;
        if (IsStalled)
            _stalled();
        _timer = _context.Time.CreateTimer(_ => _context.Writer.Post(_look), null, Interval, Timeout.InfiniteTimeSpan);
    }

    /// <summary>Looks no more.</summary>
    public void Dispose() => _timer?.Dispose();

    private void Look()
    {
        if (_life.HasEnded)
            return;
        _timer?.Dispose();
        _timer = null;
        if (!IsDiskFull)
            return;
        _checkpoints.StartForSpace();
        _journal.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
        Watch();
    }
}
