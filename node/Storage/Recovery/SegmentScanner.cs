using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// Reads a segment's records from its first block on. A record counts only if its envelope is of this incarnation of the segment, its body is intact, and
/// it follows the previous one. The bodies of covered records are not read: nothing is replayed from them, and they are verified when one is read for a
/// follower. It tells what the bytes show: <c>JournalScan</c> decides by it how the journal ends, <c>RecoveryDecisions</c> what becomes of the directory, and
/// <c>RecoveredStore.StartSegment</c> ends the journal there, with a new segment. Opening thread.
/// </summary>
internal sealed class SegmentScanner(IStorageFile file, ulong incarnation) : IDisposable
{
    private const int WindowBytes = 1 << 20;
    private const int FrontWindowBytes = 16 << 10;

    // Rented, because a node opens a hundred stores with several segments each when it starts. The runtime's pool would keep one for each thread and processor.
    private byte[] _window = LargeArrays.Rent(WindowBytes);
    private long _windowStart;
    private int _windowCount;
    private long _unreadableLast = -1;

    /// <summary>Where the next record would start.</summary>
    public long Offset { get; private set; } = SegmentHeader.BlockBytes;

    /// <summary>The newest record that was durable when some record read so far was submitted to the disk, according to that record.</summary>
    public Etag Proven { get; private set; }

    /// <summary>Continues at an offset where a record starts or would start.</summary>
    public void MoveTo(long offset) => Offset = offset;

    /// <summary>
    /// Reads the next record and moves past it. False if no intact record follows <paramref name="previous"/>. For a record up to
    /// <paramref name="covered"/> only the envelope and the header are verified.
    /// </summary>
    public bool TryReadNext(in RecordRef previous, Etag covered, out RecordRef record)
    {
        var isRead = (previous.Etag < covered && TryReadFront(Offset, out record, out var envelope) && record.Etag <= covered)
            || TryReadAt(Offset, out record, out envelope);
        if (!isRead || !record.Follows(previous))
            return false;
        Proven = Etag.Max(Proven, envelope.DurableAtSubmission);
        Offset += RecordEnvelope.RecordBytes(record.BodyBytes);
        return true;
    }

    /// <summary>
    /// Searches after the end for an intact record that was submitted to the disk when something after <paramref name="last"/> was already durable. Such a
    /// record proves that the bytes at the end were once intact. A later record without this proof may follow a torn one.
    /// </summary>
    public bool HasProofOfLoss(Etag last, out long offset)
    {
        for (offset = Offset + RecordEnvelope.BlockBytes; offset < file.Length; offset += RecordEnvelope.BlockBytes)
        {
            if (TryReadAt(offset, out _, out var envelope) && envelope.DurableAtSubmission > last)
                return true;
        }
        return false;
    }

    /// <summary>Whether there is an envelope of this incarnation at the end, so that a record was being written there.</summary>
    public bool HasEnvelopeAtEnd() =>
        TryWindow(Offset, RecordEnvelope.Bytes, out var front) && RecordEnvelope.TryRead(front, out var envelope) && envelope.Incarnation == incarnation;

    /// <summary>
    /// Whether an intact record was written here when the file was the segment with this number: it names the segment, or it is at the front, which is
    /// zeroed before a file is reused. Records left from earlier uses after the front do not count.
    /// </summary>
    public bool HasRecordOf(ulong number)
    {
        for (long offset = SegmentHeader.BlockBytes; offset < file.Length; offset += RecordEnvelope.BlockBytes)
        {
            if (TryReadSound(offset, out _, out var envelope) && (offset == SegmentHeader.BlockBytes || SegmentHeader.Names(envelope.Incarnation, number)))
                return true;
        }
        return false;
    }

    /// <summary>Whether a block at or after this offset could not be read, among those that were requested.</summary>
    public bool HasUnreadableFrom(long offset) => _unreadableLast >= offset;

    /// <inheritdoc/>
    public void Dispose()
    {
        file.Dispose();
        Rent(0);
    }

    private bool TryReadFront(long offset, out RecordRef record, out RecordEnvelope envelope)
    {
        record = default;
        envelope = default;
        return TryWindow(offset, RecordEnvelope.Bytes + RecordBody.HeaderBytes, out var front, FrontWindowBytes)
            && RecordEnvelope.TryRead(front, out envelope) && envelope.Incarnation == incarnation
            && offset + RecordEnvelope.RecordBytes(envelope.BodyBytes) <= file.Length
            && RecordBody.TryReadHeader(front[RecordEnvelope.Bytes..], envelope.BodyBytes, envelope.BodyChecksum, out record);
    }

    private bool TryReadAt(long offset, out RecordRef record, out RecordEnvelope envelope)
    {
        record = default;
        return TryWindow(offset, RecordEnvelope.Bytes, out var front) && RecordEnvelope.TryRead(front, out envelope) && envelope.Incarnation == incarnation
            ? TryReadSound(offset, out record, out envelope)
            : NoRecord(out envelope);
    }

    private static bool NoRecord(out RecordEnvelope envelope)
    {
        envelope = default;
        return false;
    }

    /// <summary>Reads a record of any incarnation.</summary>
    private bool TryReadSound(long offset, out RecordRef record, out RecordEnvelope envelope)
    {
        record = default;
        envelope = default;
        if (!TryWindow(offset, RecordEnvelope.Bytes, out var front) || !RecordEnvelope.TryRead(front, out envelope)
            || !TryWindow(offset, RecordEnvelope.Bytes + envelope.BodyBytes, out var bytes))
            return false;
        var body = bytes[RecordEnvelope.Bytes..];
        return RecordBody.TryVerify(body, out record) && record.Checksum == envelope.BodyChecksum;
    }

    private bool TryWindow(long offset, int count, out ReadOnlySpan<byte> bytes, int windowBytes = WindowBytes)
    {
        bytes = default;
        if (offset < _windowStart || offset + count > _windowStart + _windowCount)
        {
            if (_window.Length < count)
                Rent(count);
            _windowStart = offset;
            _windowCount = ReadWindow(_window.AsSpan(0, Math.Max(count, Math.Min(windowBytes, _window.Length))), offset);
        }
        if (_windowCount < count)
            return false;
        bytes = _window.AsSpan((int)(offset - _windowStart), count);
        return true;
    }

    /// <summary>Replaces the window by one for so many bytes; 0: by an empty one, which is not returned.</summary>
    private void Rent(int bytes)
    {
        var before = _window;
        (_window, _windowCount) = (bytes == 0 ? [] : LargeArrays.Rent(bytes), 0);
        if (before.Length > 0)
            LargeArrays.Return(before);
    }

    /// <summary>Reads a window. Unreadable blocks are recorded and returned as zeros, which are never a valid record.</summary>
    private int ReadWindow(Span<byte> window, long offset)
    {
        try
        {
            return file.Read(window, offset);
        }
        catch (StorageIoException)
        {
            // Read block by block, so that an unreadable block hides no other.
        }
        var total = 0;
        while (total < window.Length && offset + total < file.Length)
        {
            var block = window[total..Math.Min(window.Length, total + RecordEnvelope.BlockBytes)];
            try
            {
                total += file.Read(block, offset + total);
            }
            catch (StorageIoException)
            {
                block.Clear();
                _unreadableLast = Math.Max(_unreadableLast, offset + total);
                total += block.Length;
            }
        }
        return total;
    }
}
