using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// A record of the live journal. Created by the writer executor. The journal's lane fills in the location before it reports the record durable, and does
/// not touch it afterwards.
/// </summary>
internal sealed class JournalEntry(RecordRef record, ReadOnlyMemory<byte> body)
{
    /// <summary>The record.</summary>
    public RecordRef Record { get; } = record;

    /// <summary>Its body while it is kept in memory, otherwise empty. Never changed; frames to followers may reference it.</summary>
    public ReadOnlyMemory<byte> Body { get; set; } = body;

    /// <summary>
    /// The segment that holds it; 0 until a lane assigns the location, which it does before it writes. Read it only when the record is durable.
    /// </summary>
    public ulong Segment { get; set; }

    /// <summary>Where its envelope starts in the segment, in bytes.</summary>
    public long Offset { get; set; }

    /// <summary>Whether it was truncated; its completion is then ignored. Writer executor.</summary>
    public bool IsTruncated { get; set; }

    /// <summary>Journal bytes from the first record the index ever had to the end of this one. Writer executor.</summary>
    public long BytesThrough { get; set; }

    /// <summary>Whether its write has completed. Writer executor.</summary>
    public bool IsDurable { get; set; }

    /// <summary>Bytes that it takes in a segment, including its envelope.</summary>
    public int Bytes => RecordEnvelope.RecordBytes(Record.BodyBytes);

    /// <summary>Where the next record starts if it is in the same segment.</summary>
    public long End => Offset + Bytes;
}
