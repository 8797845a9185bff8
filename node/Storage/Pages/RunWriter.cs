using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Gathers the pages of a checkpoint into few, long writes. On the checkpoint executor; a failed write is a <see cref="StorageIoException"/>.
/// </summary>
internal sealed unsafe class RunWriter(IStorageFile file, PageSpace space, int writeBytes) : IDisposable
{
    private readonly AlignedBuffer _buffer = new(Math.Max(writeBytes / Page.Bytes, 1) * Page.Bytes);
    private long _first;
    private int _pages;

    /// <summary>The place where a page's image is to be made; the one before is complete then.</summary>
    public byte* Next(long number)
    {
        if (_pages * Page.Bytes == _buffer.Length || (_pages > 0 && number != _first + _pages))
            Flush();
        if (_pages == 0)
            _first = number;
        space.Forget(number);
        // Native memory: the address stays good.
        fixed (byte* memory = _buffer.Span)
            return memory + (_pages++ * Page.Bytes);
    }

    /// <summary>Writes what was gathered.</summary>
    public void Flush()
    {
        if (_pages > 0)
        {
            file.Write(_buffer.Span[..(_pages * Page.Bytes)], _first * Page.Bytes);
            // Not all at the sync: the journal's writes would wait behind it.
            file.BeginWriteOut(_first * Page.Bytes, _pages * Page.Bytes);
        }
        _pages = 0;
    }

    /// <inheritdoc/>
    public void Dispose() => _buffer.Dispose();
}
