using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Snapshots;

/// <summary>
/// A pinned checkpoint as a stream for a replica that is too far behind. Opened and disposed on the writer executor; read on any thread,
/// one at a time. Its pages, and the journal behind it, stay until it is disposed.
/// </summary>
internal sealed class SnapshotSource : IDisposable
{
    private readonly CheckpointPin _pin;
    private readonly SnapshotStream _stream;
    private readonly byte[] _prefix;
    private readonly byte[] _page = new byte[Page.Bytes];

    private readonly Action<SnapshotSource> _closed;

    /// <summary>Owns the pin from here on; tells when it lets go of it.</summary>
    public SnapshotSource(CheckpointPin pin, Action<SnapshotSource> closed)
    {
        _pin = pin;
        _closed = closed;
        _stream = new SnapshotStream(pin.Coverage.Etag, pin.Coverage.ChainChecksum, pin.FileBytes / Page.Bytes, pin.Runs);
        _prefix = _stream.EncodePrefix();
    }

    /// <summary>What it covers: the receiver's journal goes on behind this record.</summary>
    public Coverage Covers => _pin.Coverage;

    /// <summary>Length of the stream in bytes.</summary>
    public long BytesTotal => _stream.BytesTotal;

    /// <summary>Fills the destination with the stream's bytes from an offset on; fewer only at the end.</summary>
    public int Read(Span<byte> destination, long offset)
    {
        var total = 0;
        while (total < destination.Length && offset + total < BytesTotal)
            total += ReadSome(destination[total..], offset + total);
        return total;
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _closed(this);
        _pin.Dispose();
    }

    private int ReadSome(Span<byte> destination, long offset)
    {
        if (offset < _prefix.Length)
        {
            var count = (int)Math.Min(destination.Length, _prefix.Length - offset);
            _prefix.AsSpan((int)offset, count).CopyTo(destination);
            return count;
        }
        var (fileOffset, bytes) = _stream.Locate(offset);
        var (page, inPage) = Math.DivRem(fileOffset, Page.Bytes);
        var whole = (int)Math.Min(destination.Length, bytes) / Page.Bytes * Page.Bytes;
        if (inPage == 0 && whole > 0)
        {
            _pin.ReadPages(page, destination[..whole]);
            return whole;
        }
        _pin.ReadPages(page, _page);
        var part = _page.AsSpan((int)inPage);
        part = part[..Math.Min(part.Length, destination.Length)];
        part.CopyTo(destination);
        return part.Length;
    }
}
