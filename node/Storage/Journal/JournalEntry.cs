namespace KvCluster.Storage.Journal;

/// <summary>
/// A record of the live journal. Created by the writer executor. The journal's lane fills in the location before it reports the record durable, and does
/// not touch it afterwards.
/// </summary>
internal sealed class JournalEntry(RecordRef record, ReadOnlyMemory<byte> body, BodySlab? slab = null)
{
    private BodySlab? _slab = slab;

    /// <summary>The record.</summary>
    public RecordRef Record { get; } = record;

    /// <summary>The record's body while it is kept in memory, otherwise empty. Not changed before <see cref="Drop"/>, and never if it was shared.</summary>
    public ReadOnlyMemory<byte> Body { get; private set; } = body;

    /// <summary>
    /// The segment that holds it; 0 until a lane assigns the location, which it does before it writes. Read it only when the record is durable.
    /// </summary>
    public ulong Segment { get; set; }

    /// <summary>Where its envelope starts in the segment, in bytes.</summary>
    public long Offset { get; set; }

    /// <summary>Whether the record was truncated; the completion of its write is then ignored. Writer executor.</summary>
    public bool IsTruncated { get; set; }

    /// <summary>Journal bytes from the first record the index ever had to the end of this one. Writer executor.</summary>
    public long BytesThrough { get; set; }

    /// <summary>Whether its write has completed. Writer executor.</summary>
    public bool IsDurable { get; set; }

    /// <summary>Bytes that it takes in a segment, including its envelope.</summary>
    public int Bytes => RecordEnvelope.RecordBytes(Record.BodyBytes);

    /// <summary>
    /// The body, for somebody who keeps it beyond the current step, such as frames to followers: its memory is not used for another one. Writer executor.
    /// </summary>
    public ReadOnlyMemory<byte> Share()
    {
        _slab = null;
        return Body;
    }

    /// <summary>
    /// Drops the body, whose memory may be used for another one from here on. Only if it is durable, because a lane may read it before. Writer executor.
    /// </summary>
    public void Drop()
    {
        Invariant.Check(IsDurable, $"The body of record {Record} was dropped before it was durable.");
        Body = default;
        _slab?.Release();
        _slab = null;
    }

    /// <summary>Where the next record starts if it is in the same segment.</summary>
    public long End => Offset + Bytes;
}
