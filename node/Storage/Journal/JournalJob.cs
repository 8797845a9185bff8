using KvCluster.Storage.Control;

namespace KvCluster.Storage.Journal;

/// <summary>
/// What the journal has to do. A job is returned to the writer executor when it is durable, records in order. On a full disk, control states overtake the
/// records that wait for space. Records that are truncated while they wait are returned unwritten.
/// </summary>
internal enum JournalJobKind
{
    /// <summary>Write <see cref="JournalJob.Entry"/>.</summary>
    Record,

    /// <summary>Write <see cref="JournalJob.Control"/>.</summary>
    Control,

    /// <summary>Truncate: end the line at <see cref="JournalJob.Entry"/> (null: at the journal's base) and start a new segment.</summary>
    Truncation,

    /// <summary>Recycle the segments numbered below <see cref="JournalJob.Number"/>, which are no longer needed.</summary>
    Recycle,

    /// <summary>The store is quiescent: continue in a small segment, and give back the files that are prepared for more.</summary>
    Shrink,

    /// <summary>The disk was full: check whether there is space again.</summary>
    LookForSpace,
}

/// <summary>A job of the kind <see cref="JournalJobKind"/>. Created by the writer executor and not changed afterwards.</summary>
internal sealed class JournalJob(JournalJobKind kind)
{
    /// <summary>What to do.</summary>
    public JournalJobKind Kind { get; } = kind;

    /// <summary>The record to write, or the last one that a truncation keeps.</summary>
    public JournalEntry? Entry { get; init; }

    /// <summary>
    /// For a record: whether it may use the space reserved for a full disk. A follower's records may not, because its checkpoint needs that space to free
    /// journal segments.
    /// </summary>
    public bool UsesReserve { get; init; }

    /// <summary>
    /// Whether it is a record of one block, of which those of many shards are written together. A larger one is the batch of a busy shard, which makes its next
    /// batch meanwhile.
    /// </summary>
    public bool IsSmallRecord => Kind == JournalJobKind.Record && Entry!.Bytes <= RecordEnvelope.BlockBytes;

    /// <summary>The control state to write.</summary>
    public ControlState? Control { get; init; }

    /// <summary>For a truncation: the record it ends at, even if that is no longer in the journal.</summary>
    public RecordRef Last { get; init; }

    /// <summary>For a truncation: the removed records, which are kept in the aside directory.</summary>
    public IReadOnlyList<JournalEntry> Tail { get; init; } = [];

    /// <summary>For recycling: the lowest segment that is kept.</summary>
    public ulong Number { get; init; }
}
