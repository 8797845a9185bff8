using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Snapshots;

/// <summary>
/// A pinned checkpoint as a stream for a replica that is too far behind. Opened, taken back and disposed on the writer executor. Read on the checkpoint
/// executor, which also writes checkpoints, so that no page changes during a read. Its pages, and the journal after it, are kept until it is disposed or
/// taken back.
/// </summary>
internal sealed class SnapshotSource : IDisposable
{
    private readonly CheckpointPin _pin;
    private readonly SnapshotStream _stream;
    private readonly byte[] _prefix;
    private readonly PageOrderCheck _check;
    private readonly Action<SnapshotSource> _closed;
    private volatile bool _isGone;

    /// <summary>Stream offset up to which the pages have been verified.</summary>
    private long _checkedTo;

    /// <summary>Owns the pin from here on; reports when it releases it.</summary>
    public SnapshotSource(CheckpointPin pin, Action<SnapshotSource> closed)
    {
        _pin = pin;
        _closed = closed;
        _stream = new SnapshotStream(pin.CheckpointPosition.Etag, pin.CheckpointPosition.ChainChecksum, pin.FileBytes / Page.Bytes, pin.Runs);
        _prefix = _stream.EncodePrefix();
        _check = new PageOrderCheck(pin.Path);
        // The two meta pages are generated when they are read.
        _checkedTo = _prefix.Length + (2 * Page.Bytes);
    }

    /// <summary>Called on the writer executor with the reason when the pin is taken back. May be null.</summary>
    public Action<string>? TakenBack { get; set; }

    /// <summary>What it covers. The receiver's journal continues after this record.</summary>
    public CheckpointPosition Covers => _pin.CheckpointPosition;

    /// <summary>Length of the stream in bytes.</summary>
    public long BytesTotal => _stream.BytesTotal;

    /// <summary>Length of the part before the first page.</summary>
    public long PrefixBytes => _prefix.Length;

    /// <summary>The pages that follow that part.</summary>
    public IReadOnlyList<PageRun> Pages => _stream.Runs;

    /// <summary>
    /// Fills the destination with the stream's bytes from an offset on; returns fewer only at the end. Pages read in order are verified before they are
    /// returned. Returns -1 if the source was taken back or disposed.
    /// </summary>
    /// <exception cref="CorruptStoreException">A page is not what was written, or cannot be read. This replica's state is damaged.</exception>
    public int Read(Span<byte> destination, long offset)
    {
        var total = 0;
        using var buffer = new AlignedBuffer(((destination.Length / Page.Bytes) + 2) * Page.Bytes);
        try
        {
            while (!_isGone && total < destination.Length && offset + total < BytesTotal)
                total += ReadSome(destination[total..], offset + total, buffer);
        }
        catch (CorruptStoreException damage)
        {
            _pin.TellDamage(damage);
            throw;
        }
        return _isGone ? -1 : total;
    }

    /// <summary>Releases the checkpoint before its owner does, and notifies the owner.</summary>
    public void TakeBack(string reason)
    {
        if (_isGone)
            return;
        Dispose();
        TakenBack?.Invoke(reason);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        // Set first, for a later read: pages that are released may be overwritten.
        _isGone = true;
        _closed(this);
        _pin.Dispose();
    }

    private int ReadSome(Span<byte> destination, long offset, AlignedBuffer buffer)
    {
        if (offset < _prefix.Length)
        {
            var count = (int)Math.Min(destination.Length, _prefix.Length - offset);
            _prefix.AsSpan((int)offset, count).CopyTo(destination);
            return count;
        }
        var (fileOffset, bytes) = _stream.Locate(offset);
        var (first, inPage) = Math.DivRem(fileOffset, Page.Bytes);
        var wanted = (int)Math.Min(destination.Length, bytes);
        var pages = buffer.Span[..((int)(inPage + wanted + Page.Bytes - 1) / Page.Bytes * Page.Bytes)];
        ReadPages(first, pages);
        CheckPages(first, offset - inPage, pages);
        pages.Slice((int)inPage, wanted).CopyTo(destination);
        return wanted;
    }

    private void ReadPages(long first, Span<byte> pages)
    {
        try
        {
            _pin.ReadPages(first, pages);
        }
        catch (StorageIoException failure)
        {
            throw new CorruptStoreException($"Pages from {first} on cannot be read: {failure.Message}", failure);
        }
    }

    /// <summary>
    /// Verifies pages that continue in order. Pages verified before, and those of a transfer resumed in the middle, are left to the receiver.
    /// </summary>
    private void CheckPages(long first, long offset, ReadOnlySpan<byte> pages)
    {
        var before = _checkedTo - offset;
        if (before < 0 || before >= pages.Length)
            return;
        _check.Add(first + (before / Page.Bytes), pages[(int)before..]);
        _checkedTo = offset + pages.Length;
    }
}
