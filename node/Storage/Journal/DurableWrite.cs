using KvCluster.Storage.Context;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Records that are written with one write, and their location in a segment. Filled by the <see cref="JournalEnd"/>, written by one lane.
/// </summary>
/// <param name="file">The segment's file.</param>
/// <param name="segment">Its number.</param>
/// <param name="incarnation">Its incarnation, which each record carries.</param>
/// <param name="durable">The newest record that, with all records before it, is durable when this write is submitted.</param>
/// <param name="offset">Where the first record goes.</param>
/// <param name="previous">The record before the first.</param>
internal sealed class DurableWrite(SegmentFile file, ulong segment, ulong incarnation, Etag durable, long offset, RecordRef previous)
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

    /// <summary>Where the next record goes.</summary>
    public long End => offset + Bytes;

    /// <summary>Whether this write is durable. The records before it may not be.</summary>
    public bool IsDurable { get; set; }

    /// <summary>Whether another record may be added to this write.</summary>
    public bool Takes(int bytes) => Bytes == 0 || Bytes + bytes <= BytesMax;

    /// <summary>Adds a record after the last one.</summary>
    public void Add(JournalJob job)
    {
        var entry = job.Entry!;
        entry.Segment = segment;
        entry.Offset = End;
        Bytes += entry.Bytes;
        _jobs.Add(job);
    }

    /// <summary>
    /// Writes the records through a buffer of at least <see cref="BytesMax"/> bytes. They are durable when it returns: this is where commits are synced,
    /// because the segment is opened with <c>O_DSYNC</c> (<see cref="SegmentFile"/>), with which a write returns when the disk has the data.
    /// </summary>
    public void WriteDurable(AlignedBuffer staging, StoreContext context)
    {
        var observer = context.Observer;
        if (!observer.IsWatching)
        {
            WriteBlocks(staging);
            return;
        }
        var began = context.Time.GetTimestamp();
        WriteBlocks(staging);
        observer.JournalWritten(_jobs[0].Entry!.Record, _jobs[^1].Entry!.Record, Bytes, context.Time.GetElapsedTime(began));
    }

    private void WriteBlocks(AlignedBuffer staging)
    {
        var (at, staged) = (offset, 0);
        foreach (var job in _jobs)
        {
            var record = job.Entry!.Record;
            new RecordEnvelope(incarnation, durable, record.BodyBytes, record.Checksum).WriteTo(staging.Span[staged..]);
            staged += RecordEnvelope.Bytes;
            for (var rest = job.Entry.Body.Span; ;)
            {
                var count = Math.Min(rest.Length, staging.Length - staged);
                rest[..count].CopyTo(staging.Span[staged..]);
                staged += count;
                rest = rest[count..];
                if (rest.IsEmpty)
                    break;
                file.WriteDurable(staging.Span[..staged], at);
                (at, staged) = (at + staged, 0);
            }
            var padded = RecordEnvelope.RoundUp(staged);
            staging.Span[staged..padded].Clear();
            staged = padded;
        }
        file.WriteDurable(staging.Span[..staged], at);
    }
}
