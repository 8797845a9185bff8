using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Looks for space once a second while the disk is full: it starts a checkpoint, which frees journal segments, and has the journal try again. Compares the
/// pages changed since the last checkpoint with the space that there is for them, so that the disk counts as full while the checkpoint still fits: nothing but
/// that checkpoint frees anything. The other stores on the disk are asked to give way. Owned by a store; writer executor.
/// </summary>
internal sealed class FullDiskWatch : IDisposable
{
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(1);

    /// <summary>Pages that any batch may change at least. A delete takes a path.</summary>
    private const int PagesMin = 16;

    /// <summary>
    /// By how much the changed pages grow or shrink until the disk is looked at again, in bytes: half of the space that was left for them when last looked at,
    /// within these bounds. A batch may take the other half. Each new segment of the journal has it looked at, too.
    /// </summary>
    private const long LookBytesMin = PagesMin * Page.Bytes;
    private const long LookBytesMax = 1 << 20;

    /// <summary>A checkpoint of this many bytes is left to the reserve.</summary>
    private const long ChangedBytesFew = 1 << 20;

    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly PageStore _pages;
    private readonly string _directory;
    private readonly JournalWriter _journal;
    private readonly SpaceReserve _reserve;
    private readonly CheckpointSchedule _checkpoints;
    private readonly StoreMemory _memory;
    private readonly Action _stalled;
    private readonly IWorkItem _look;
    private readonly IWorkItem _giveWay;
    private SharedDisk.Member? _share;
    private ITimer? _timer;
    private long _changedBytes;
    private long _reusableBytes;
    private long _journalBytes;

    /// <summary>Bytes that the disk has, when last looked at.</summary>
    private long _freeBytes = long.MaxValue;

    /// <summary>Bytes for which there is space beyond the changed pages, when last looked at.</summary>
    private long _bytesBeyond = long.MaxValue;

    /// <summary>What the next checkpoint takes from the disk, or the one in progress still takes.</summary>
    private long _checkpointBytes;
    private bool _isShort;

    /// <summary>Watches nothing before <see cref="Start"/> or <see cref="Watch"/>.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="life">Nothing is begun when the store has ended.</param>
    /// <param name="pages">Changed pages need space.</param>
    /// <param name="journal">May find no space for a record.</param>
    /// <param name="reserve">Renewed when there is space again.</param>
    /// <param name="checkpoints">May find no space for a page, and free journal segments.</param>
    /// <param name="memory">Knows what the node's other stores have changed.</param>
    /// <param name="stalled">Called when the disk is found full and records wait for space.</param>
    public FullDiskWatch(
        StoreContext context, StoreLifecycle life, PageStore pages, JournalWriter journal, SpaceReserve reserve,
        CheckpointSchedule checkpoints, StoreMemory memory, Action stalled)
    {
        (_context, _life, _pages, _journal, _reserve, _checkpoints, _memory, _stalled) = (context, life, pages, journal, reserve, checkpoints, memory, stalled);
        _directory = Path.GetDirectoryName(pages.File.Path)!;
        _look = life.Guarded(Look);
        _giveWay = life.Guarded(GiveWay);
    }

    /// <summary>
    /// Whether there is no space for a segment or a checkpoint, or no more than the next checkpoint takes. Puts are then refused and a follower's records wait.
    /// Space is looked for once a second. Any thread.
    /// </summary>
    public bool IsDiskFull => _journal.IsDiskFull || _checkpoints.IsDiskFull || Volatile.Read(ref _isShort);

    /// <summary>
    /// Whether the disk is full, or had less space when last looked at than the records that may wait for it and a segment take. A follower then applies none
    /// that is not durable here: once the disk is full it might never become durable, and a checkpoint, without which no journal is recycled, would wait for
    /// it.
    /// </summary>
    public bool IsScarce => IsDiskFull || _freeBytes < _context.Options.WaitingBodyBytesMax + _context.Options.SegmentBytesMax;

    /// <summary>Whether records wait for space. Any thread.</summary>
    public bool IsStalled => _journal.IsStalled;

    /// <summary>How many bytes of records are certain to fit on a full disk; null while there is space.</summary>
    /// <param name="inFlight">Bytes of records that are on their way there.</param>
    public long? BytesLeft(long inFlight) => !IsDiskFull ? null : HasRoomToChange ? _journal.BytesLeft - inFlight : 0;

    /// <summary>How many pages the next batch may change.</summary>
    public int PagesLeft => (int)Math.Clamp(_bytesBeyond / 2 / Page.Bytes, PagesMin, int.MaxValue);

    private bool HasRoomToChange => IsCovered || _bytesBeyond >= LookBytesMin;

    /// <summary>
    /// Whether a checkpoint of the changed pages fits without looking: into the reserve while it is held; otherwise, for the pages of one batch, into what the
    /// data file keeps.
    /// </summary>
    private bool IsCovered => _changedBytes < (_reserve.IsHeld ? ChangedBytesFew : LookBytesMin);

    /// <summary>Called once, when the owner is set.</summary>
    public void Start()
    {
        _share = _context.SharedDisk.Join(() => _context.Writer.Post(_giveWay));
        // The reserve was released earlier or never complete, or opening found the disk full and continued without it.
        if (!_reserve.IsHeld || IsDiskFull)
            _journal.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
    }

    /// <summary>
    /// Called after each batch of a leader and each step of a follower. A checkpoint is started early when it would take half of the space that there is, and
    /// before the disk is full journal that is only kept gives way: when it takes more than is left.
    /// </summary>
    public void Observe()
    {
        var changed = _pages.ChangedFileBytes;
        if (_life.HasEnded
            || (!IsDiskFull && Math.Abs(changed - _changedBytes) < Math.Clamp(_bytesBeyond / 2, LookBytesMin, LookBytesMax) && _journal.Bytes == _journalBytes))
            return;
        Measure();
        var keepsTooMuch = IsScarce && _checkpoints.JournalKeptBytes > _freeBytes;
        var isShort = keepsTooMuch || (_changedBytes > ChangedBytesFew && _bytesBeyond < _changedBytes);
        _journal.NoteSpace(isShort || IsDiskFull, _checkpointBytes);
        if (keepsTooMuch)
            _checkpoints.StartToGiveWay();
        else if (isShort)
            _checkpoints.StartForMemory();
        Watch();
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
    public void Dispose()
    {
        _timer?.Dispose();
        _share?.Dispose();
    }

    private void Look()
    {
        _timer?.Dispose();
        _timer = null;
        if (!IsDiskFull)
            return;
        // The checkpoint comes first: the journal leaves it what it takes.
        _checkpoints.StartForSpace();
        Measure();
        _journal.NoteSpace(isShort: true, _checkpointBytes);
        _journal.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
        _share?.AskOthers();
        Watch();
    }

    /// <summary>
    /// Another store on the disk lacks space. What this one only keeps gives way: journal that checkpoints cover, and segments that are prepared or longer than
    /// it needs now. A store that lacks space itself looks for it anyway.
    /// </summary>
    private void GiveWay()
    {
        if (IsDiskFull || (_journal.IsSmall && _journal.Bytes <= 2L * _context.Options.SegmentBytesMin))
            return;
        _journal.NoteSpace(isShort: true, _checkpointBytes);
        _checkpoints.StartToGiveWay();
        if (!_journal.IsSmall)
            _journal.Enqueue(new JournalJob(JournalJobKind.Shrink));
    }

    private void Measure()
    {
        (_changedBytes, _journalBytes) = (_pages.ChangedFileBytes, _journal.Bytes);
        // The journal's next segment may take that much, and so may the checkpoints of the node's other stores.
        _freeBytes = _context.Files.AvailableBytes(_directory);
        var available = Math.Clamp(_freeBytes - _context.Options.SegmentBytesMax - _memory.OthersFileBytes, 0, 1L << 60);
        // A checkpoint in progress has space for what it has written, perhaps of what was reusable before. It does not share the free map.
        var written = _checkpoints.BytesWritten;
        _reusableBytes = _checkpoints.IsRunning ? _reusableBytes : _pages.ReusableBytes;
        var placed = Math.Max(_reusableBytes, written);
        _checkpointBytes = Math.Max(0, _changedBytes - placed);
        _bytesBeyond = available + placed - _changedBytes;
        Volatile.Write(ref _isShort, !IsCovered && _bytesBeyond < 2 * LookBytesMin);
    }
}
