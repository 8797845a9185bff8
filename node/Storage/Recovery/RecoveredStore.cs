using KvCluster.Storage.Control;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using Microsoft.Extensions.Logging;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What an opened directory consists of, after <c>RecoveryTable</c> has decided that it may be opened. Opening thread. Up to
/// <see cref="StartSegment"/> nothing on the disk is changed, so recovery may be interrupted and repeated (S7).
/// </summary>
internal sealed partial class RecoveredStore : IDisposable
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

    /// <summary>Looks at everything, decides, and opens or refuses.</summary>
    /// <exception cref="RecoveryRefusedException">The table refuses.</exception>
    public static RecoveredStore Open(StoreContext context, string directory)
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
            var states = files.DirectoryExists(directory) ? layout.States(files) : [];
            facts = facts with
            {
                ControlSlots = control?.SlotsValid ?? 0,
                HasState = states.Count > 0,
                Committed = control?.State.Committed ?? default,
                Acknowledged = control?.State.Acknowledged ?? default,
            };
            if (control is not null && facts.HasState)
                facts = LookAtState(context, layout.State(states[^1]), facts, out pages);
            var row = RecoveryTable.Decide(facts);
            var description = row.Describe(facts);
            if (!row.Opens)
                throw new RecoveryRefusedException(directory, row.Name, description, facts.DataFault);
            LogOpening(context.Log, directory, row.Name, description);
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
        var segments = _line.Segments;
        var tail = segments[^1].Header;
        var (predecessor, predecessorEnd) = (tail.Number, _line.TailEnd);
        // An empty segment at the end is left out of the line, so that opening again and again does not make it longer.
        if (_line.TailEnd == SegmentHeader.BlockBytes)
        {
            (predecessor, predecessorEnd) = (tail.PredecessorNumber, tail.PredecessorEnd);
            segments.RemoveAt(segments.Count - 1);
        }
        journal.Adopt(segments.Select(segment => (segment.Header.Number, segment.Header.Incarnation, segment.Bytes)), tail.Number + 1);
        var known = segments.Exists(segment => segment.Header.Number == predecessor);
        journal.StartSegment(Index.Last, known ? predecessor : 0, known ? predecessorEnd : 0);
        foreach (var number in _line.Files.Where(number => number <= tail.Number && !segments.Exists(segment => segment.Header.Number == number)))
            journal.Retire(number);
        foreach (var state in _states.SkipLast(1))
            _context.Files.DeleteDirectory(Layout.State(state));
        _context.Files.DeleteDirectory(Layout.Incoming);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Control.Dispose();
        Pages.Dispose();
    }

    private static RecoveryFacts LookAtState(StoreContext context, string state, RecoveryFacts facts, out PageStore? pages)
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
        var covered = pages.Covered;
        return facts with
        {
            Meta = covered.Etag,
            MetaChecksum = covered.ChainChecksum,
            Line = JournalLine.Read(context.Files, StoreLayout.Journal(state), covered.Etag),
        };
    }

    [LoggerMessage(Level = LogLevel.Information, Message = "Opening '{Directory}': {Row}: {Description}")]
    private static partial void LogOpening(ILogger log, string directory, string row, string description);
}
