using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Snapshots;

/// <summary>
/// A pinned checkpoint as a stream for a replica that is too far behind. Opened, taken back and disposed on the writer executor; read on the checkpoint executor,
/// which also writes checkpoints, so that no page changes under a read. Its pages, and the journal behind it, stay until it is disposed or taken back.
/// </summary>
internal sealed class SnapshotSource : IDisposable
{
    private readonly CheckpointPin _pin;
    private readonly SnapshotStream _stream;
    private readonly byte[] _prefix;
    private readonly PageOrderCheck _check;
    private readonly Action<SnapshotSource> _closed;
    private volatile bool _isGone;

    /// <summary>Where the pages begin of which no checksum was compared; the pages before it were sound.</summary>
    private long _checkedTo;

    /// <summary>Owns the pin from here on; tells when it lets go of it.</summary>
    public SnapshotSource(CheckpointPin pin, Action<SnapshotSource> closed)
    {
        _pin = pin;
        _closed = closed;
        _stream = new SnapshotStream(pin.CheckpointPosition.Etag, pin.CheckpointPosition.ChainChecksum, pin.FileBytes / Page.Bytes, pin.Runs);
        _prefix = _stream.EncodePrefix();
        _check = new PageOrderCheck(pin.Path);
        // The two meta pages are made when they are read.
        _checkedTo = _prefix.Length + (2 * Page.Bytes);
    }

    /// <summary>Told on the writer executor why the pin was taken back. Null: nobody asks.</summary>
    public Action<string>? TakenBack { get; set; }

    /// <summary>What it covers: the receiver's journal goes on behind this record.</summary>
    public CheckpointPosition Covers => _pin.CheckpointPosition;

    /// <summary>Length of the stream in bytes.</summary>
    public long BytesTotal => _stream.BytesTotal;

    /// <summary>Length of the part of it before the first page.</summary>
    public long PrefixBytes => _prefix.Length;

    /// <summary>The pages that follow.</summary>
    public IReadOnlyList<PageRun> Pages => _stream.Runs;

    /// <summary>
    /// Fills the destination with the stream's bytes from an offset on; fewer only at the end. Pages that come in order are checked before they are given away.
    /// -1: it was taken back or disposed.
    /// </summary>
    /// <exception cref="CorruptStoreException">A page is not what was written, or cannot be read: this replica's state is damaged.</exception>
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

    /// <summary>Lets go of the checkpoint before its owner does, and tells it.</summary>
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
        // First of all, for a read that comes later: pages that are let go of may be written over.
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

    /// <summary>Pages that were checked before, and those of a transfer that is taken up in its middle, are for the receiver to check.</summary>
    private void CheckPages(long first, long offset, ReadOnlySpan<byte> pages)
    {
        var before = _checkedTo - offset;
        if (before < 0 || before >= pages.Length)
            return;
        _check.Add(first + (before / Page.Bytes), pages[(int)before..]);
        _checkedTo = offset + pages.Length;
    }
}
