using System.Buffers.Binary;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What an opened directory consists of, after <c>RecoveryTable</c> has decided that it may be opened. Opening thread. Up to
/// <see cref="StartSegment"/> nothing on the disk is changed, so recovery may be interrupted and repeated (S7).
/// </summary>
internal sealed class RecoveredStore : IDisposable
{
    private readonly StoreContext _context;
    private readonly JournalLine _line;
    private readonly List<uint> _states;

    private RecoveredStore(
        StoreContext context, RecoveryRow row, StoreLayout layout, List<uint> states, ControlFile control, PageStore pages, JournalLine line)
    {
        _context = context;
        Row = row;
        _states = states;
        _line = line;
        Layout = layout;
        EndedUncleanly = context.Files.FileExists(layout.Running);
        Control = control;
        Pages = pages;
        Index = new JournalIndex(line.Base, context.Options.RecentBodyBytesMax);
        foreach (var entry in line.Entries)
            Index.Append(entry);
    }

    /// <summary>The row that decided.</summary>
    public RecoveryRow Row { get; }

    /// <summary>The names.</summary>
    public StoreLayout Layout { get; }

    /// <summary>Where the segments are.</summary>
    public string JournalDirectory => StoreLayout.Journal(Layout.State(_states[^1]));

    /// <summary>The control file.</summary>
    public ControlFile Control { get; }

    /// <summary>The trees, at the newest checkpoint.</summary>
    public PageStore Pages { get; }

    /// <summary>The records of the line.</summary>
    public JournalIndex Index { get; }

    /// <summary>The process that had the directory open before did not close it: what ended it may have been a page that could not be read.</summary>
    public bool EndedUncleanly { get; }

    /// <summary>Looks at everything, decides, and opens or refuses.</summary>
    /// <param name="context">What the store runs on.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="mayRecover">The replica has peers that can give it back what it lost.</param>
    /// <param name="expected">Whose directory it must be; null: anybody's.</param>
    /// <exception cref="ForeignStoreException">It is another replica's; asked before the table, since a stranger's damage is none of ours.</exception>
    /// <exception cref="RecoveryRefusedException">The table refuses.</exception>
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
            var row = RecoveryTable.Decide(facts);
            var description = row.Describe(facts);
            if (row.Decision == RecoveryDecision.Rebuild || (row.Decision == RecoveryDecision.RecoverFromPeers && !mayRecover))
                throw new RecoveryRefusedException(directory, row.Name, description, facts.DataFault);
            StoreLog.Opening(context.Log, directory, row.Name, description);
            return new RecoveredStore(context, row, layout, states, control!, pages!, facts.Line!);
        }
        catch
        {
            control?.Dispose();
            pages?.Dispose();
            throw;
        }
    }

    /// <summary>
    /// Hands the line to the journal writer and starts its new segment; then removes what is dead: segments off the line, older states, an
    /// unfinished snapshot.
    /// </summary>
    public void StartSegment(JournalWriter journal)
    {
        SyncNames();
        if (Row.Decision == RecoveryDecision.RecoverFromPeers && _context.Rules.RemembersLoss)
            RememberLoss();
        Control.Settle();
        UnprovenTail.Settle(_context.Files, JournalDirectory, Index, UInt128.Max(_line.Proven, Control.State.Committed));
        var segments = _line.Segments;
        var (predecessor, predecessorEnd) = segments.Count == 0 ? default : (segments[^1].Header.Number, _line.TailEnd);
        // An empty segment at the end is left out of the line, so that opening again and again does not make it longer.
        if (segments.Count > 0 && _line.TailEnd == SegmentHeader.BlockBytes)
        {
            (predecessor, predecessorEnd) = (segments[^1].Header.PredecessorNumber, segments[^1].Header.PredecessorEnd);
            segments.RemoveAt(segments.Count - 1);
        }
        // Behind what was lost a number may have been used that no header shows any more.
        var used = Row.Decision == RecoveryDecision.RecoverFromPeers && _line.Files.Count > 0 ? _line.Files[^1] : _line.Newest;
        journal.Adopt(segments.Select(segment => (segment.Header.Number, segment.Header.Incarnation, segment.Bytes)), used + 1);
        var known = segments.Exists(segment => segment.Header.Number == predecessor);
        journal.StartSegment(Index.Last, known ? predecessor : 0, known ? predecessorEnd : 0);
        foreach (var number in _line.Files.Where(number => number <= used && !segments.Exists(segment => segment.Header.Number == number)))
            journal.Retire(number);
        foreach (var state in _states.SkipLast(1))
            _context.Files.DeleteDirectory(Layout.State(state));
        _context.Files.DeleteDirectory(Layout.Incoming);
        MarkRunning();
    }

    /// <summary>Tells what the opening took.</summary>
    /// <param name="readTime">For <see cref="Open"/>.</param>
    /// <param name="published">Up to where records were applied since.</param>
    /// <param name="replayTime">For that.</param>
    public void LogReplay(TimeSpan readTime, UInt128 published, TimeSpan replayTime)
    {
        var covered = Index.FirstAfter(Pages.Covered.Etag);
        var replayed = Index.FirstAfter(published);
        StoreLog.Replayed(
            _context.Log, Layout.Directory, Index.BytesOf(0, Index.Count) >> 20, (long)readTime.TotalMilliseconds, replayed - covered, Index.BytesOf(covered, replayed) >> 20,
            (long)replayTime.TotalMilliseconds);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Control.Dispose();
        Pages.Dispose();
    }

    /// <summary>What created the directory, or received its state, may have ended between a rename and its sync: the name is there, and gone with the power.</summary>
    private void SyncNames()
    {
        if (_states.Count > 1)
            _context.Files.SyncDirectory(Layout.Directory);
        else if (StoreDirectory.IsNew(_line))
            StoreDirectory.SyncName(_context.Files, Layout.Directory);
    }

    /// <summary>
    /// Before the new segment buries what shows the loss, the control file says it: with the greatest etag that the replica can have
    /// acknowledged, since what it lost is not known. It promises an epoch before it appends in it.
    /// </summary>
    private void RememberLoss()
    {
        var state = Control.State;
        var mark = new UInt128(Math.Max(state.PromisedEpoch, Index.Last.Epoch), ulong.MaxValue);
        if (state.Acknowledged < mark)
            Control.Write(state with { Acknowledged = mark });
    }

    /// <summary>Not synced: it is for the end of the process, and not of the machine. Without room for it, an unclean end is not seen.</summary>
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
            return facts with { DataFault = new CorruptStoreException($"'{data}' is another replica's") };
        var covered = pages.Covered;
        return facts with
        {
            Meta = covered.Etag,
            MetaChecksum = covered.ChainChecksum,
            Line = JournalLine.Read(context.Files, StoreLayout.Journal(state), covered, control.ReplicaId),
        };
    }
}
