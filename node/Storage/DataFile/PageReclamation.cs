using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// Returns retired pages to the scratch pool or the free map as soon as nothing reaches them (S1). <see cref="LeavingPages"/> retires what no
/// checkpoint needs any more; <see cref="PinnedRuns"/> keeps what pins reach, and <see cref="RetiredPages{T}"/> what readers reach; if that is too much,
/// <see cref="CostliestReader"/> ends one. Writer only, except the counts.
/// </summary>
internal sealed unsafe class PageReclamation
{
    private readonly ReaderSlots _readers;
    private readonly FreeMap _free;
    private readonly long _heldBytesMax;
    private readonly long _digestBytesMax;

    /// <summary>What one call frees at most, if no more was added meanwhile.</summary>
    private readonly int _runsPerStep;
    private readonly int _pagesPerStep;
    private readonly RetiredPages<RetiredScratch> _scratch;
    private readonly RetiredPages<RetiredRun> _runs;
    private readonly PinnedRuns _pinned;
    private readonly CostliestReader _costliest;
    private readonly List<ReaderSlots.Reader> _present = [];
    private readonly Queue<(Checkpoint Checkpoint, ulong Epoch)> _placed = new();

    /// <summary>Pages of the first placed checkpoint that are retired already.</summary>
    private int _placedRetired;
    private long _placedBytes;
    private long _placedFolds;
    private long _fileBytes;

    /// <param name="readers">The readers of the store.</param>
    /// <param name="pins">Its pins.</param>
    /// <param name="pool">Receives scratch pages.</param>
    /// <param name="free">Receives runs of the file.</param>
    /// <param name="options">The bounds.</param>
    public PageReclamation(ReaderSlots readers, CheckpointPins pins, ScratchPool pool, FreeMap free, PageStoreOptions options)
    {
        _readers = readers;
        _free = free;
        (_heldBytesMax, _digestBytesMax) = (options.PinnedBytesMax, options.DigestPinnedBytesMax);
        (_runsPerStep, _pagesPerStep) = (options.StepPages, (options.StepPages + 15) / 16);
        _scratch = new RetiredPages<RetiredScratch>(readers, retired => pool.Return((byte*)retired.Page));
        _runs = new RetiredPages<RetiredRun>(readers, AllowReuse);
        _pinned = new PinnedRuns(pins);
        _costliest = new CostliestReader(readers, _scratch, _runs);
    }

    /// <summary>Bytes of scratch memory that only readers still need. Any thread; may be out of date.</summary>
    public long HeldScratchBytes => _scratch.HeldBytes;

    /// <summary>By how many bytes their pages in the file would be more if they came there, which they do not. Any thread; may be out of date.</summary>
    public long HeldFolds => _scratch.HeldFolds;

    /// <summary>The part of <see cref="HeldScratchBytes"/> that digests hold and no caller's reader. Any thread; may be out of date.</summary>
    public long DigestScratchBytes => _scratch.DigestBytes;

    /// <summary>
    /// Bytes of the file that the last checkpoint that took both meta pages has left. Readers may hold as many beyond their bounds: otherwise each that is
    /// open at the end of such a checkpoint would have to end, because it holds at once what was to be kept for the older meta page.
    /// </summary>
    public long OlderBytes { get; set; }

    /// <summary>If callers' readers hold more bytes of scratch memory than this, the one that holds most must end.</summary>
    public long HeldScratchBytesMax { get; set; } = long.MaxValue;

    /// <summary>If snapshots of digests hold more bytes of scratch memory than this, the one that holds most must end.</summary>
    public long DigestScratchBytesMax { get; set; } = long.MaxValue;

    /// <summary>
    /// Bytes of scratch memory that only readers still need, plus bytes of the file that are retired and not reusable yet. Any thread; may be out of date.
    /// </summary>
    public long PinnedBytes => _scratch.HeldBytes + Volatile.Read(ref _fileBytes);

    /// <summary>Bytes of scratch memory that a finished checkpoint has placed in the file and that wait to be returned. Any thread.</summary>
    public long PlacedBytes => Volatile.Read(ref _placedBytes);

    /// <summary>By how many bytes their pages in the file are more, because deltas were folded into them. Any thread.</summary>
    public long PlacedFolds => Volatile.Read(ref _placedFolds);

    /// <summary>The runs of the file that are retired and not reusable yet.</summary>
    public IEnumerable<PageRun> Runs => _runs.All.Concat(_pinned.All).Select(retired => retired.Run);

    /// <summary>Retires a scratch page or run. The parameters are as in <see cref="RetiredScratch"/>.</summary>
    public void RetireScratch(nint page, ulong epoch, ulong left) => _scratch.Add(new RetiredScratch(epoch, page, left));

    /// <summary>Retires the scratch pages of a finished checkpoint, in steps: some with each release.</summary>
    /// <param name="checkpoint">The checkpoint. The trees refer to its pages in the file now.</param>
    /// <param name="epoch">Readers that start after this epoch do not reach them.</param>
    public void RetirePlaced(Checkpoint checkpoint, ulong epoch)
    {
        _placed.Enqueue((checkpoint, epoch));
        Volatile.Write(ref _placedBytes, _placedBytes + checkpoint.ScratchBytes);
        Volatile.Write(ref _placedFolds, _placedFolds + checkpoint.PageBytes - checkpoint.ScratchBytes);
    }

    /// <summary>
    /// Retires pages of the file that neither of the two newest checkpoints reaches. Parts of one run may have been placed by different checkpoints. The
    /// parameters are as in <see cref="RetiredRun"/>. Not while a checkpoint is being written.
    /// </summary>
    public void RetireRun(PageRun run, ulong epoch, ulong left, ulong revision)
    {
        Volatile.Write(ref _fileBytes, _fileBytes + (run.Count * Page.Bytes));
        for (var (first, end) = (run.First, run.First + run.Count); first < end;)
        {
            var born = _free.BornOf(first);
            var next = first + 1;
            while (next < end && _free.BornOf(next) == born)
                next++;
            // Pins first, and readers only when those are gone, so no reader is ended for pages that a pin keeps.
            _pinned.KeepOrPass(new RetiredRun(epoch, born, left, revision, new PageRun(first, next - first)), _runs);
            first = next;
        }
    }

    /// <summary>Whether there is more for <see cref="Release"/> than what batches retire and release themselves.</summary>
    public bool HasMore(Releasable which) =>
        (which != Releasable.Runs && (_placed.Count > 0 || _scratch.HasReturned)) || (which != Releasable.Scratch && _runs.HasReturned);

    /// <summary>
    /// Frees some of what no reader or pin can reach any more, at least as fast as more is added. The rest follows with the next calls, because all at once
    /// would hold the writer for a tenth of a second per gigabyte.
    /// </summary>
    /// <param name="which">
    /// While a checkpoint is being written no runs, since the free map does not belong to the writer then. It is therefore unknown during that time which
    /// readers no longer need them. While one is being finished no scratch pages.
    /// </param>
    public void Release(Releasable which)
    {
        if (which != Releasable.Runs)
            RetireSomePlaced();
        if (_scratch.IsEmpty && _runs.IsEmpty && _pinned.IsEmpty)
            return;
        _readers.Collect(_present);
        _present.Sort(ByResponsibility);
        if (which != Releasable.Runs)
            _scratch.Release(_present, _pagesPerStep);
        if (which != Releasable.Scratch)
        {
            _pinned.Release(_runs);
            _runs.Release(_present, _runsPerStep);
        }
        _costliest.EndIfAbove(_present, areDigests: false, HeldScratchBytesMax, _heldBytesMax + OlderBytes, withRuns: which != Releasable.Scratch);
        _costliest.EndIfAbove(
            _present, areDigests: true, DigestScratchBytesMax, _digestBytesMax + OlderBytes, withRuns: which != Releasable.Scratch);
    }

    private void RetireSomePlaced()
    {
        for (var pages = 0; pages < _pagesPerStep && _placed.TryPeek(out var placed);)
        {
            if (_placedRetired == placed.Checkpoint.Scratch.Count)
            {
                _placed.Dequeue();
                _placedRetired = 0;
                continue;
            }
            var page = placed.Checkpoint.Scratch[_placedRetired++];
            var left = Page.LeftBy((byte*)page);
            var retired = new RetiredScratch(placed.Epoch, page, left == 0 ? ulong.MaxValue : left);
            _scratch.Add(retired);
            pages += retired.Work;
            Volatile.Write(ref _placedBytes, _placedBytes - retired.Bytes);
            Volatile.Write(ref _placedFolds, _placedFolds - retired.Folds);
        }
    }

    private void AllowReuse(RetiredRun retired)
    {
        _free.AllowReuse(retired.Run);
        Volatile.Write(ref _fileBytes, _fileBytes - retired.Bytes);
    }

    // Digests come last: what a caller's reader holds as well is that one's to return. The oldest of callers' readers comes first, and reaches the most, so a
    // point read is never charged with what a scan holds.
    private static int ByResponsibility(ReaderSlots.Reader one, ReaderSlots.Reader other) =>
        one.IsDigest != other.IsDigest ? one.IsDigest.CompareTo(other.IsDigest) : one.Epoch.CompareTo(other.Epoch);
}

/// <summary>What may be freed at the moment.</summary>
internal enum Releasable
{
    /// <summary>Runs of the file and scratch pages.</summary>
    Both,

    /// <summary>Only runs of the file.</summary>
    Runs,

    /// <summary>Only scratch pages.</summary>
    Scratch,
}
