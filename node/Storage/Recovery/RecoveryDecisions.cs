using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What recovery does for each combination of damage. The first row that applies decides; a test walks all rows. Rebuilding and refusing are always safe.
/// Recovering requires that everything the checkpoint covers is intact. Opening is only right if nothing that was durable can be missing.
/// </summary>
internal static class RecoveryDecisions
{
    /// <summary>The rows, in the order in which they are evaluated.</summary>
    public static readonly IReadOnlyList<RecoveryRow> Rows =
    [
        Rebuild("quarantined", facts => facts.Quarantined is not null,
            facts => $"the replica was quarantined because its content is not trusted: {facts.Quarantined}"),
        Rebuild("control file missing", facts => !facts.HasControlFile,
            _ => "the control file, which holds the replica's promises, is missing"),
        Rebuild("control file unreadable", facts => facts.ControlSlots == 0,
            _ => "neither slot of the control file is intact"),
        Rebuild("state missing", facts => !facts.HasState,
            _ => "there is no state directory"),
        Rebuild("data file unusable", facts => facts.DataFault is not null,
            facts => facts.DataFault!.Message.TrimEnd('.')),
        Rebuild("checkpoint not on the chain", facts => facts.Journal!.Segments.Count > 0 && !facts.MetaIsOnLine,
            facts => $"the journal does not contain the last record of the checkpoint, {EtagText.Of(facts.Meta)}, with the checksum {facts.MetaChecksum:X8}"),
        RecoverFromPeers("no segment", facts => facts.Journal!.Newest == 0,
            _ => "no journal segment has an intact header"),
        RecoverFromPeers("last segment missing", facts => !facts.Journal!.HasNextFile,
            facts => $"{NextPlace(facts)} is missing, although each segment is created before its predecessor is used"),
        RecoverFromPeers("last segment lost its header", facts => facts.Journal!.LostItsHeader is not null,
            facts => $"{facts.Journal!.Place(facts.Journal.LostItsHeader!.Value, 0)}: the segment contains an intact record, but its header is damaged"),
        RecoverFromPeers("journal does not reach the checkpoint", facts => facts.Journal!.Gap is not null,
            facts => $"{facts.Journal!.Gap}: the journal begins after, or ends before, the last record of the checkpoint, {EtagText.Of(facts.Meta)}"),
        RecoverFromPeers("segment damaged", facts => facts.Journal!.Break is not null,
            facts => $"{facts.Journal!.Break}: a record is damaged, and later segments show that it was durable"),
        RecoverFromPeers("durable record damaged", facts => facts.Journal!.Tail == JournalTailState.Lost,
            facts => $"{TailPlace(facts)} a record is damaged, and a later record shows that it was durable"),
        RecoverFromPeers("journal unreadable", facts => facts.Journal!.Unreadable is not null,
            facts => $"after {facts.Journal!.Unreadable}, the disk has unreadable blocks that may belong to the journal"),
        RecoverFromPeers("journal ends before committed", facts => facts.Journal!.Last.Etag < facts.Committed,
            facts => $"{TailPlace(facts)} the journal ends with {EtagText.Of(facts.Journal!.Last.Etag)}, but the control file shows "
                + $"{EtagText.Of(facts.Committed)} as committed"),
        RecoverFromPeers("journal ends before acknowledged", facts => facts.Journal!.Last.Etag < facts.Acknowledged,
            facts => $"{TailPlace(facts)} the journal ends with {EtagText.Of(facts.Journal!.Last.Etag)}, but the control file shows "
                + $"{EtagText.Of(facts.Acknowledged)} as acknowledged"),
        Open("covered record damaged", facts => facts.Journal!.CoveredBreak is not null,
            facts => $"{facts.Journal!.CoveredBreak}: a record that the checkpoint covers is damaged; followers can get only the records after it"),
        Open("torn record at the end", facts => facts.Journal!.Tail == JournalTailState.Torn,
            facts => $"{TailPlace(facts)} a record was not completely written; the journal ends before it"),
        Open("control slot torn", facts => facts.ControlSlots == 1,
            _ => "one slot of the control file is damaged; the other one is used"),
        Open("sound", _ => true, _ => "no damage was found"),
    ];

    /// <summary>The row for these facts.</summary>
    public static RecoveryRow Decide(RecoveryFacts facts) => Rows.First(row => row.Applies(facts));

    private static RecoveryRow Rebuild(string name, Func<RecoveryFacts, bool> applies, Func<RecoveryFacts, string> describe) =>
        new(name, RecoveryDecision.Rebuild, applies, describe);

    private static RecoveryRow RecoverFromPeers(string name, Func<RecoveryFacts, bool> applies, Func<RecoveryFacts, string> describe) =>
        new(name, RecoveryDecision.RecoverFromPeers, applies, describe);

    private static RecoveryRow Open(string name, Func<RecoveryFacts, bool> applies, Func<RecoveryFacts, string> describe) =>
        new(name, RecoveryDecision.Open, applies, describe);

    private static string TailPlace(RecoveryFacts facts) =>
        facts.Journal!.Segments.Count == 0
            ? "after the checkpoint,"
            : facts.Journal.Place(facts.Journal.Segments[^1].Header.Number, facts.Journal.TailEnd) + ":";

    private static JournalPlace NextPlace(RecoveryFacts facts) => facts.Journal!.Place(facts.Journal.Newest + 1, 0);
}

/// <summary>One row of <c>RecoveryDecisions</c>.</summary>
/// <param name="Name">Its name in tests and in the log.</param>
/// <param name="Decision">What is done with the directory. If it is refused, it is not changed.</param>
/// <param name="Applies">Whether the row applies to the facts.</param>
/// <param name="Describe">The message, which names the bytes that are damaged.</param>
internal sealed record RecoveryRow(string Name, RecoveryDecision Decision, Func<RecoveryFacts, bool> Applies, Func<RecoveryFacts, string> Describe);

/// <summary>What a row of <c>RecoveryDecisions</c> does with a directory.</summary>
internal enum RecoveryDecision
{
    /// <summary>Nothing that was durable is missing. The directory is opened.</summary>
    Open,

    /// <summary>
    /// The checkpoint is intact, and after it something durable is, or may be, missing. A replica with peers opens with what is left and does not vote,
    /// acknowledge or lead until it has recovered the rest from them. Without peers it is refused.
    /// </summary>
    RecoverFromPeers,

    /// <summary>Promises or the checkpoint are lost. The directory is refused; the replica must be rebuilt from a peer under a new id.</summary>
    Rebuild,
}

/// <summary>What an open found; the input of <c>RecoveryDecisions</c>. Anything that could not be examined has its default value.</summary>
internal sealed record RecoveryFacts
{
    /// <summary>Why the directory is quarantined; null if it is not.</summary>
    public string? Quarantined { get; init; }

    /// <summary>Whether the control file exists.</summary>
    public bool HasControlFile { get; init; }

    /// <summary>Number of intact slots in it, 0 to 2.</summary>
    public int ControlSlots { get; init; }

    /// <summary>Whether a state directory exists.</summary>
    public bool HasState { get; init; }

    /// <summary>Why the data file cannot be used; null if it can.</summary>
    public Exception? DataFault { get; init; }

    /// <summary>The records of the journal, and how they end; null when it was not read.</summary>
    public JournalScan? Journal { get; init; }

    /// <summary>The etag that the newest intact meta page covers.</summary>
    public Etag Meta { get; init; }

    /// <summary>The checksum of that record according to the meta page.</summary>
    public uint MetaChecksum { get; init; }

    /// <summary>The committed etag in the control file.</summary>
    public Etag Committed { get; init; }

    /// <summary>The acknowledged etag in the control file.</summary>
    public Etag Acknowledged { get; init; }

    /// <summary>Whether the last record of the checkpoint is on the line, or directly before it, with the checksum in the meta page.</summary>
    public bool MetaIsOnLine =>
        Journal is not null
        && ((Journal.Base.Etag == Meta && Journal.Base.Checksum == MetaChecksum)
            || Journal.Entries.Exists(entry => entry.Record.Etag == Meta && entry.Record.Checksum == MetaChecksum));
}

/// <summary>
/// Recovery found damage after which the store cannot be opened, by the decision of <see cref="RecoveryDecisions"/>. Nothing was changed. A replica with peers
/// is rebuilt from them under a new id; without peers an operator decides.
/// </summary>
internal sealed class RecoveryRefusedException(string directory, string row, string description, Exception? inner)
    : CorruptStoreException($"The store in '{directory}' was not opened, and nothing in it was changed ({row}): {description}.", inner)
{
    /// <summary>The row of <c>RecoveryDecisions</c>.</summary>
    public string Row { get; } = row;
}
