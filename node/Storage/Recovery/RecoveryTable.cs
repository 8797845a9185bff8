using System.Globalization;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What recovery does for each combination of damage: the first row that applies decides. A test walks all rows. Rebuilding and refusing
/// are always safe; recovering is where all that the checkpoint covers is there; opening is only right where nothing that was durable can be missing.
/// </summary>
internal static class RecoveryTable
{
    /// <summary>The rows, in the order in which they are asked.</summary>
    public static readonly IReadOnlyList<RecoveryRow> Rows =
    [
        Rebuild("quarantined", facts => facts.Quarantined is not null,
            facts => $"it was taken out of service, since its content is not to be believed: {facts.Quarantined}"),
        Rebuild("control file missing", facts => !facts.HasControlFile,
            _ => "the control file is missing, and with it the replica's promises"),
        Rebuild("control file unreadable", facts => facts.ControlSlots == 0,
            _ => "neither slot of the control file is sound"),
        Rebuild("state missing", facts => !facts.HasState,
            _ => "there is no state directory"),
        Rebuild("data file unusable", facts => facts.DataFault is not null,
            facts => facts.DataFault!.Message),
        Rebuild("checkpoint not on the chain", facts => facts.Line!.Segments.Count > 0 && !facts.MetaIsOnLine,
            facts => $"the record {Text(facts.Meta)} that the checkpoint ends with is not in the journal with its checksum {facts.MetaChecksum:X8}"),
        RecoverFromPeers("no segment", facts => facts.Line!.Newest == 0,
            _ => "no journal segment has a sound header"),
        RecoverFromPeers("last segment missing", facts => !facts.Line!.HasNextFile,
            facts => $"{NextPlace(facts)} is missing: it is created before its predecessor is used"),
        RecoverFromPeers("last segment lost its header", facts => facts.Line!.LostItsHeader is not null,
            facts => $"{facts.Line!.Place(facts.Line.LostItsHeader!.Value, 0)}: the header is destroyed before a sound record"),
        RecoverFromPeers("journal does not reach the checkpoint", facts => facts.Line!.Gap is not null,
            facts => $"{facts.Line!.Gap} the journal begins behind, or ends before, the record {Text(facts.Meta)} that the checkpoint ends with"),
        RecoverFromPeers("segment damaged", facts => facts.Line!.Break is not null,
            facts => $"{facts.Line!.Break} a record is bad, and later segments show that it was durable"),
        RecoverFromPeers("durable record damaged", facts => facts.Line!.Tail == TailFault.Lost,
            facts => $"{TailPlace(facts)} a record is bad, and a later record shows that it was durable"),
        RecoverFromPeers("journal unreadable", facts => facts.Line!.Unreadable is not null,
            facts => $"Behind {facts.Line!.Unreadable} the disk cannot read what may belong to the journal"),
        RecoverFromPeers("journal ends before committed", facts => facts.Line!.Last.Etag < facts.Committed,
            facts => $"{TailPlace(facts)} the journal ends with {Text(facts.Line!.Last.Etag)}, but the control file shows {Text(facts.Committed)} as committed"),
        RecoverFromPeers("journal ends before acknowledged", facts => facts.Line!.Last.Etag < facts.Acknowledged,
            facts => $"{TailPlace(facts)} the journal ends with {Text(facts.Line!.Last.Etag)}, but the control file shows {Text(facts.Acknowledged)} as acknowledged"),
        Open("covered record damaged", facts => facts.Line!.CoveredBreak is not null,
            facts => $"{facts.Line!.CoveredBreak} a record is bad that the checkpoint covers; followers are served from behind it"),
        Open("torn record at the end", facts => facts.Line!.Tail == TailFault.Torn,
            facts => $"{TailPlace(facts)} a record was being written and is not complete; the journal ends there"),
        Open("control slot torn", facts => facts.ControlSlots == 1,
            _ => "one slot of the control file is not sound; the other one counts"),
        Open("sound", _ => true, _ => "nothing is wrong"),
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
        facts.Line!.Segments.Count == 0 ? "Behind the checkpoint" : facts.Line.Place(facts.Line.Segments[^1].Header.Number, facts.Line.TailEnd) + ":";

    private static string NextPlace(RecoveryFacts facts) => facts.Line!.Place(facts.Line.Newest + 1, 0);

    private static string Text(UInt128 etag) =>
        string.Create(CultureInfo.InvariantCulture, $"(epoch {(ulong)(etag >> 64)}, change {(ulong)etag})");
}

/// <summary>One row of <c>RecoveryTable</c>.</summary>
/// <param name="Name">How tests and the log call it.</param>
/// <param name="Decision">What becomes of the directory. What is refused is not changed.</param>
/// <param name="Applies">Whether the facts are this row's.</param>
/// <param name="Describe">What is said: which bytes are bad.</param>
internal sealed record RecoveryRow(string Name, RecoveryDecision Decision, Func<RecoveryFacts, bool> Applies, Func<RecoveryFacts, string> Describe);

/// <summary>What becomes of a directory by a row of <c>RecoveryTable</c>.</summary>
internal enum RecoveryDecision
{
    /// <summary>Nothing that was durable is missing: it opens.</summary>
    Open,

    /// <summary>
    /// The checkpoint is whole, and behind it something durable is, or may be, missing. A replica with peers opens with what there is and
    /// neither votes, acknowledges nor leads until they have recovered it; alone it is refused.
    /// </summary>
    RecoverFromPeers,

    /// <summary>Promises or checkpoint are lost: refused. The replica is to be rebuilt from a peer under a new id.</summary>
    Rebuild,
}

/// <summary>What an opening store found; the input of <c>RecoveryTable</c>. What could not be looked at is at its default.</summary>
internal sealed record RecoveryFacts
{
    /// <summary>Why the directory is marked as not to be opened; null: it is not marked.</summary>
    public string? Quarantined { get; init; }

    /// <summary>The control file is there.</summary>
    public bool HasControlFile { get; init; }

    /// <summary>Sound slots in it, 0 to 2.</summary>
    public int ControlSlots { get; init; }

    /// <summary>A state directory is there.</summary>
    public bool HasState { get; init; }

    /// <summary>Why the data file cannot be used; null if it can.</summary>
    public Exception? DataFault { get; init; }

    /// <summary>The journal's line; null when it was not read.</summary>
    public JournalLine? Line { get; init; }

    /// <summary>The etag that the newest sound meta page covers.</summary>
    public UInt128 Meta { get; init; }

    /// <summary>The checksum of that record, as the meta page has it.</summary>
    public uint MetaChecksum { get; init; }

    /// <summary>The committed etag of the control file.</summary>
    public UInt128 Committed { get; init; }

    /// <summary>The acknowledged etag of the control file.</summary>
    public UInt128 Acknowledged { get; init; }

    /// <summary>The record that the checkpoint ends with is on the line, or right before it, with the checksum that the meta page names.</summary>
    public bool MetaIsOnLine =>
        Line is not null
        && ((Line.Base.Etag == Meta && Line.Base.Checksum == MetaChecksum)
            || Line.Entries.Exists(entry => entry.Record.Etag == Meta && entry.Record.Checksum == MetaChecksum));
}
