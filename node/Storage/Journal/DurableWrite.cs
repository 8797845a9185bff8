using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Records that are written with one write, and their location in a segment. Filled by the <see cref="JournalEnd"/>, written by one lane.
/// </summary>
/// <param name="file">The segment's file.</param>
/// <param name="segment">Its header.</param>
/// <param name="durable">The newest record that, with all records before it, is durable when this write is submitted.</param>
/// <param name="offset">Where the first record goes.</param>
/// <param name="previous">The record before the first.</param>
internal sealed class DurableWrite(SegmentFile file, SegmentHeader segment, Etag durable, long offset, RecordRef previous)
{
    /// <summary>A longer write contains only one record.</summary>
    public const int BytesMax = 1 << 20;

    /// <summary>Bytes of a longer write that one call writes. Each call waits for the disk, so a record of some megabytes takes few.</summary>
    public const int CallBytesMax = 4 << 20;

    private readonly List<JournalJob> _jobs = [];

    /// <summary>The records, in order.</summary>
    public IReadOnlyList<JournalJob> Jobs => _jobs;

    /// <summary>Where the first record goes.</summary>
    public long Offset => offset;

    /// <summary>The record before the first.</summary>
    public RecordRef Previous => previous;

    /// <summary>Its length so far.</summary>
    public int Bytes { get; private set; }

    /// <summary>Its length so far without what fills the records up to whole blocks.</summary>
    public int PackedBytes { get; private set; }

    /// <summary>Where the next record goes.</summary>
    public long End => offset + Bytes;

    /// <summary>Whether this write is durable. The records before it may not be.</summary>
    public bool IsDurable { get; set; }

    /// <summary>Whether a block of a shared journal has made it durable.</summary>
    public bool IsShared { get; private set; }

    /// <summary>Whether another record may be added to this write.</summary>
    public bool Takes(int bytes) => Bytes == 0 || Bytes + bytes <= BytesMax;

    /// <summary>Adds a record after the last one.</summary>
    public void Add(JournalJob job)
    {
        var entry = job.Entry!;
        entry.Segment = segment.Number;
        entry.Offset = End;
        Bytes += entry.Bytes;
        PackedBytes += RecordEnvelope.Bytes + entry.Record.BodyBytes;
        _jobs.Add(job);
    }

    /// <summary>The file as a shared journal has it written.</summary>
    public UnsyncedFile UnsyncedIn(SharedJournal shared) => file.UnsyncedIn(shared);

    /// <summary>Where the records belong, as a block of a shared journal says it.</summary>
    public SharedEntry EntryIn(UnsyncedFile unsynced) =>
        new(unsynced.Name, segment.ReplicaId, segment.Incarnation, offset, _jobs[^1].Entry!.Record.Etag, PackedBytes);

    /// <summary>Copies the records, each with its envelope and directly behind the one before.</summary>
    public void Pack(Span<byte> destination)
    {
        foreach (var job in _jobs)
        {
            EnvelopeOf(job.Entry!).WriteTo(destination);
            var body = job.Entry!.Body.Span;
            body.CopyTo(destination[RecordEnvelope.Bytes..]);
            destination = destination[(RecordEnvelope.Bytes + body.Length)..];
        }
    }

    /// <summary>
    /// Writes the records through a buffer of at least <see cref="BytesMax"/> bytes. They are durable when it returns: this is where commits are synced,
    /// because the segment is opened with <c>O_DSYNC</c> (<see cref="SegmentFile"/>), with which a write returns when the disk has the data. The other place is
    /// a block of the shared journal (<see cref="SharedLane"/>).
    /// </summary>
    public void WriteDurable(AlignedBuffer staging, StoreContext context)
    {
        var began = context.Observer.IsWatching ? context.Time.GetTimestamp() : 0;
        WriteBlocks(staging, unsynced: null);
        Observe(context, began);
    }

    /// <summary>Writes the records into the page cache, through such a buffer: a block of a shared journal has made them durable.</summary>
    public void WriteCached(AlignedBuffer staging, UnsyncedFile unsynced)
    {
        IsShared = true;
        WriteBlocks(staging, unsynced);
    }

    /// <summary>Tells the observer that the records are durable, if it was watching when they were submitted.</summary>
    /// <param name="context">The shard's.</param>
    /// <param name="began">When that was, as a timestamp; 0 if nobody was watching.</param>
    public void Observe(StoreContext context, long began)
    {
        if (began != 0)
            context.Observer.JournalWritten(_jobs[0].Entry!.Record, _jobs[^1].Entry!.Record, Bytes, context.Time.GetElapsedTime(began));
    }

    private RecordEnvelope EnvelopeOf(JournalEntry entry) => new(segment.Incarnation, durable, entry.Record.BodyBytes, entry.Record.Checksum);

    private void WriteBlocks(AlignedBuffer staging, UnsyncedFile? unsynced)
    {
        var (at, staged) = (offset, 0);
        foreach (var job in _jobs)
        {
            EnvelopeOf(job.Entry!).WriteTo(staging.Span[staged..]);
            staged += RecordEnvelope.Bytes;
            for (var rest = job.Entry!.Body.Span; ;)
            {
                var count = Math.Min(rest.Length, staging.Length - staged);
                rest[..count].CopyTo(staging.Span[staged..]);
                staged += count;
                rest = rest[count..];
                if (rest.IsEmpty)
                    break;
                Write(staging.Span[..staged], at, unsynced);
                (at, staged) = (at + staged, 0);
            }
            var padded = RecordEnvelope.RoundUp(staged);
            staging.Span[staged..padded].Clear();
            staged = padded;
        }
        Write(staging.Span[..staged], at, unsynced);
    }

    private void Write(ReadOnlySpan<byte> blocks, long at, UnsyncedFile? unsynced)
    {
        if (unsynced is null)
            file.WriteDurable(blocks, at);
        else
            unsynced.Write(blocks, at);
    }
}
