using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// What the journal is asked to do; it comes back to the writer executor when it is durable, records in order. On a full disk control states pass the
/// records that wait for room, and records that a cut takes away while they wait come back unwritten.
/// </summary>
internal enum JournalJobKind
{
    /// <summary>Write <see cref="JournalJob.Entry"/>.</summary>
    Record,

    /// <summary>Write <see cref="JournalJob.Control"/>.</summary>
    Control,

    /// <summary>End the line at <see cref="JournalJob.Entry"/> (null: at the journal's base) and start a new segment.</summary>
    Cut,

    /// <summary>Segments numbered below <see cref="JournalJob.Number"/> are not needed any more.</summary>
    Recycle,

    /// <summary>The disk was full: look whether there is room again.</summary>
    LookForSpace,
}

/// <summary>See <see cref="JournalJobKind"/>. Made by the writer executor and then not changed.</summary>
internal sealed class JournalJob(JournalJobKind kind)
{
    /// <summary>What to do.</summary>
    public JournalJobKind Kind { get; } = kind;

    /// <summary>The record to write, or the last one that a cut keeps.</summary>
    public JournalEntry? Entry { get; init; }

    /// <summary>
    /// For a record: whether it may use the space kept for a full disk. Not a follower's, whose checkpoint needs that to free journal.
    /// </summary>
    public bool UsesReserve { get; init; }

    /// <summary>The control state to write.</summary>
    public ControlState? Control { get; init; }

    /// <summary>For a cut: the record it ends at, also when that is not in the journal any more.</summary>
    public RecordRef Last { get; init; }

    /// <summary>For a cut: the records that go, to be kept aside.</summary>
    public IReadOnlyList<JournalEntry> Tail { get; init; } = [];

    /// <summary>For recycling: the lowest segment that stays.</summary>
    public ulong Number { get; init; }
}
