using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// A record of the live journal. Made by the writer executor; the journal's lane fills in the place before it reports the record
/// durable, and does not touch it afterwards.
/// </summary>
internal sealed class JournalEntry(RecordRef record, byte[]? body)
{
    /// <summary>The record.</summary>
    public RecordRef Record { get; } = record;

    /// <summary>Its body, while it is kept in memory. Never changed; frames to followers may hold on to it.</summary>
    public byte[]? Body { get; set; } = body;

    /// <summary>The segment it lies in; 0 until it has a place, which a lane gives it before it writes. To be read when it is durable.</summary>
    public ulong Segment { get; set; }

    /// <summary>Where its envelope starts in the segment, in bytes.</summary>
    public long Offset { get; set; }

    /// <summary>It was cut off; its completion is of no interest any more. Writer executor.</summary>
    public bool IsCut { get; set; }

    /// <summary>Journal bytes from the first record that its index ever had to the end of this one. Writer executor.</summary>
    public long BytesThrough { get; set; }

    /// <summary>Whether its write has completed. Writer executor.</summary>
    public bool IsDurable { get; set; }

    /// <summary>Where the next record starts if it lies in the same segment.</summary>
    public long End => Offset + RecordEnvelope.RecordBytes(Record.BodyBytes);
}
