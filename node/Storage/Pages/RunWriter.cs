using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>Gathers the pages of a checkpoint into few, long writes. Checkpoint executor; a failed write throws a <see cref="StorageIoException"/>.</summary>
internal sealed unsafe class RunWriter(IStorageFile file, PageSpace space, int writeBytes) : IDisposable
{
    private readonly AlignedBuffer _buffer = new(Math.Max(writeBytes / Page.Bytes, 1) * Page.Bytes);
    private long _first;
    private int _pages;
    private long _end;

    /// <summary>What was written so far.</summary>
    public WriteCounts Counts { get; private set; }

    /// <summary>The memory in which to build the next page's image. The previous image must be complete.</summary>
    public byte* Next(long number)
    {
        if (_pages * Page.Bytes == _buffer.Length || (_pages > 0 && number != _first + _pages))
            Flush();
        if (_pages == 0)
            _first = number;
        space.Forget(number);
        // Native memory: the address stays valid after the fixed block.
        fixed (byte* memory = _buffer.Span)
            return memory + (_pages++ * Page.Bytes);
    }

    /// <summary>Writes the gathered pages.</summary>
    public void Flush()
    {
        if (_pages > 0)
        {
            file.Write(_buffer.Span[..(_pages * Page.Bytes)], _first * Page.Bytes);
            // Start the write-out now. If all of it were left to the sync, the journal's writes would wait behind it.
            file.BeginWriteOut(_first * Page.Bytes, _pages * Page.Bytes);
            Counts = new WriteCounts(Counts.Pages + _pages, Counts.Writes + 1, Counts.Seeks + (_first == _end ? 0 : 1));
            _end = _first + _pages;
        }
        _pages = 0;
    }

    /// <inheritdoc/>
    public void Dispose() => _buffer.Dispose();
}

/// <summary>How a checkpoint was written.</summary>
/// <param name="Pages">Pages, with those of the free map.</param>
/// <param name="Writes">Calls that wrote them.</param>
/// <param name="Seeks">Calls that did not continue where the one before had ended.</param>
internal readonly record struct WriteCounts(long Pages, int Writes, int Seeks);
