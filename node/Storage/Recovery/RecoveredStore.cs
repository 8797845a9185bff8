using System.Buffers.Binary;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// The parts of an opened directory, after <c>RecoveryDecisions</c> has decided that it may be opened. Opening thread. Until <see cref="StartSegment"/>
/// nothing on disk is changed, so recovery may be interrupted and repeated (S7).
/// </summary>
internal sealed class RecoveredStore : IDisposable
{
    private readonly StoreContext _context;
    private readonly JournalScan _scan;
    private readonly List<uint> _states;

    private RecoveredStore(
        StoreContext context, RecoveryRow row, StoreLayout layout, List<uint> states, ControlFile control, PageStore pages, JournalScan scan)
    {
        _context = context;
        Row = row;
        _states = states;
        _scan = scan;
        Layout = layout;
        EndedUncleanly = context.Files.FileExists(layout.Running);
        Control = control;
        Pages = pages;
        Index = new JournalIndex(scan.Base, context.Options.RecentBodyBytesMax);
        foreach (var entry in scan.Entries)
            Index.Append(entry);
    }

    /// <summary>The row that decided.</summary>
    public RecoveryRow Row { get; }

    /// <summary>The names in the directory.</summary>
    public StoreLayout Layout { get; }

    /// <summary>The directory of the segments.</summary>
    public string JournalDirectory => StoreLayout.Journal(Layout.State(_states[^1]));

    /// <summary>The control file.</summary>
    public ControlFile Control { get; }

    /// <summary>The trees, at the newest checkpoint.</summary>
    public PageStore Pages { get; }

    /// <summary>The records of the line.</summary>
    public JournalIndex Index { get; }

    /// <summary>Whether the previous process did not close the directory. It may have crashed on a page that could not be read.</summary>
    public bool EndedUncleanly { get; }

    /// <summary>Examines the directory, decides, and opens it or refuses.</summary>
    /// <param name="context">The executors, disk and options that the store uses.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="mayRecover">
    /// The replica has peers. If its checkpoint is intact but records after it are lost, it opens with what is left, and its control state names an
    /// acknowledged etag beyond the last record. Then it must not vote, acknowledge or lead until it again has everything that is committed.
    /// </param>
    /// <param name="expected">The replica that the directory must belong to; null accepts any.</param>
    /// <exception cref="ForeignStoreException">
    /// The directory belongs to another replica. Checked before the table, because damage in it is not this replica's. Nothing was changed.
    /// </exception>
    /// <exception cref="RecoveryRefusedException">
    /// Something that was durable is, or may be, missing, and recovery is not allowed. Nothing was changed.
    /// </exception>
    /// <exception cref="FormatVersionException">The directory has another format version.</exception>
    public static RecoveredStore Open(StoreContext context, string directory, bool mayRecover, StoreIdentity? expected = null)
    {
        var layout = new StoreLayout(directory);
        var files = context.Files;
        ControlFile? control = null;
        PageStore? pages = null;
        try
        {
            var facts = new RecoveryFacts { HasControlFile = files.FileExists(layout.Control) };
            if (facts.HasControlFile)
                control = ControlFile.TryOpen(files, layout.Control);
            if (control is not null && expected is { } owner && control.State.Identity != owner)
                throw new ForeignStoreException(directory, control.State.Identity, owner);
            var states = files.DirectoryExists(directory) ? layout.States(files) : [];
            facts = facts with
            {
                Quarantined = QuarantineMark.TryRead(files, layout),
                ControlSlots = control?.SlotsValid ?? 0,
                HasState = states.Count > 0,
                Committed = control?.State.Committed ?? default,
                Acknowledged = control?.State.Acknowledged ?? default,
            };
            if (control is not null && facts is { HasState: true, Quarantined: null })
                facts = LookAtState(context, layout.State(states[^1]), control.State, facts, out pages);
            var row = RecoveryDecisions.Decide(facts);
            var description = row.Describe(facts);
            if (row.Decision == RecoveryDecision.Rebuild || (row.Decision == RecoveryDecision.RecoverFromPeers && !mayRecover))
                throw new RecoveryRefusedException(directory, row.Name, description, facts.DataFault);
            if (row.Decision == RecoveryDecision.RecoverFromPeers)
                StoreLog.OpeningWithLoss(context.Log, directory, row.Name, description);
            else
                StoreLog.Opening(context.Log, directory, row.Name, description);
            return new RecoveredStore(context, row, layout, states, control!, pages!, facts.Journal!);
        }
        catch
        {
            control?.Dispose();
            pages?.Dispose();
            throw;
        }
    }

    /// <summary>
    /// Passes the line to the journal writer and starts its new segment. Then removes what is dead: segments outside the line, older states, and an
    /// unfinished snapshot.
    /// </summary>
    public void StartSegment(JournalWriter journal)
    {
        SyncNames();
        if (Row.Decision == RecoveryDecision.RecoverFromPeers)
            RememberLoss();
        Control.Settle();
        UnsyncedTailRewrite.Settle(_context.Files, JournalDirectory, Index, Etag.Max(_scan.Proven, Control.State.Committed));
        var segments = _scan.Segments;
        var (predecessor, predecessorEnd) = segments.Count == 0 ? default : (segments[^1].Header.Number, _scan.TailEnd);
        // An empty segment at the end is removed from the line, so that repeated opens do not make it longer.
        if (segments.Count > 0 && _scan.TailEnd == SegmentHeader.BlockBytes)
        {
            (predecessor, predecessorEnd) = (segments[^1].Header.PredecessorNumber, segments[^1].Header.PredecessorEnd);
            segments.RemoveAt(segments.Count - 1);
        }
        // After a loss, segments may have had numbers that no header shows any more.
        var used = Row.Decision == RecoveryDecision.RecoverFromPeers && _scan.Files.Count > 0 ? _scan.Files[^1] : _scan.Newest;
        journal.Adopt(segments.Select(segment => (segment.Header.Number, segment.Header.Incarnation, segment.Bytes)), used + 1);
        var known = segments.Exists(segment => segment.Header.Number == predecessor);
        journal.StartSegment(Index.Last, known ? predecessor : 0, known ? predecessorEnd : 0);
        foreach (var number in _scan.Files.Where(number => number <= used && !segments.Exists(segment => segment.Header.Number == number)))
            journal.Retire(number);
        foreach (var state in _states.SkipLast(1))
            _context.Files.DeleteDirectory(Layout.State(state));
        _context.Files.DeleteDirectory(Layout.Incoming);
        MarkRunning();
    }

    /// <summary>Logs how long the open took.</summary>
    /// <param name="readTime">The time that <see cref="Open"/> took.</param>
    /// <param name="published">The etag up to which records were applied since.</param>
    /// <param name="replayTime">The time that this took.</param>
    public void LogReplay(TimeSpan readTime, Etag published, TimeSpan replayTime)
    {
        var covered = Index.FirstAfter(Pages.Covered.Etag);
        var replayed = Index.FirstAfter(published);
        StoreLog.Replayed(
            _context.Log, Layout.Directory, Index.BytesOf(0, Index.Count) >> 20, (long)readTime.TotalMilliseconds,
            replayed - covered, Index.BytesOf(covered, replayed) >> 20, (long)replayTime.TotalMilliseconds);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Control.Dispose();
        Pages.Dispose();
    }

    /// <summary>
    /// Syncs the names again. A process that created the directory, or installed a snapshot, may have died between a rename and its sync. The name is then
    /// visible but lost on a power failure.
    /// </summary>
    private void SyncNames()
    {
        if (_states.Count > 1)
            _context.Files.SyncDirectory(Layout.Directory);
        else if (StoreDirectory.IsNew(_scan))
            StoreDirectory.SyncName(_context.Files, Layout.Directory);
    }

    /// <summary>
    /// Records a loss in the control file before the new segment hides the evidence. What was lost is unknown, so the mark is the greatest etag that the
    /// replica can have acknowledged. That is bounded by the promised epoch, because a replica promises an epoch before it appends in it.
    /// </summary>
    private void RememberLoss()
    {
        var state = Control.State;
        var mark = new Etag(Math.Max(state.PromisedEpoch, Index.Last.Epoch), ulong.MaxValue);
        if (state.Acknowledged < mark)
            Control.Write(state with { Acknowledged = mark });
    }

    /// <summary>
    /// Marks the directory as open. Not synced, because the mark is for a crash of the process and not of the machine. If there is no space for it, an
    /// unclean end goes unnoticed.
    /// </summary>
    private void MarkRunning()
    {
        if (EndedUncleanly)
            return;
        try
        {
            _context.Files.Open(Layout.Running, new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
        }
        catch (StorageIoException failure) when (failure.IsDiskFull)
        {
            StoreLog.NotMarked(_context.Log, Layout.Directory, failure.Message);
        }
    }

    private static RecoveryFacts LookAtState(StoreContext context, string state, ControlState control, RecoveryFacts facts, out PageStore? pages)
    {
        pages = null;
        var data = StoreLayout.Data(state);
        if (!context.Files.FileExists(data))
            return facts with { DataFault = new CorruptStoreException($"'{data}' is missing") };
        try
        {
            pages = PageStore.Open(context.Files, data, context.Options.Pages);
        }
        catch (CorruptStoreException exception)
        {
            return facts with { DataFault = exception };
        }
        if (pages.Identity != BinaryPrimitives.ReadUInt128LittleEndian(StoreDirectory.IdentityOf(control)))
            return facts with { DataFault = new CorruptStoreException($"'{data}' belongs to another replica") };
        var covered = pages.Covered;
        return facts with
        {
            Meta = covered.Etag,
            MetaChecksum = covered.ChainChecksum,
            Journal = JournalScan.Read(context.Files, StoreLayout.Journal(state), covered, control.ReplicaId),
        };
    }
}
