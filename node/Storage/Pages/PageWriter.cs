using System.Collections.Concurrent;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Gathers the pages of a checkpoint into few, long writes, none of which goes beyond the next multiple of their length. The kernel keeps what one write
/// has brought in contiguous memory if it is aligned to its length, and maps it as one huge page if that has 2 MiB. Checkpoint executor; a failed write
/// throws a <see cref="StorageIoException"/>. It has a buffer only while pages are gathered, so there are as many as executors, whatever the number of shards.
/// </summary>
internal sealed unsafe class PageWriter(IStorageFile file, PageSpace space, int writeBytes) : IDisposable
{
    private static readonly ConcurrentBag<AlignedBuffer> Pool = [];
    private static readonly (long From, long To) NothingPending = (long.MaxValue, 0);
    private readonly int _length = Math.Max(writeBytes / Page.Bytes, 1) * Page.Bytes;
    private AlignedBuffer? _buffer;
    private long _first;
    private int _pages;
    private long _end;

    /// <summary>The bytes of the file that were written, but whose write-out has not begun: some from the first on, before the second.</summary>
    private (long From, long To) _pending = NothingPending;

    /// <summary>What was written so far.</summary>
    public WriteCounts Counts { get; private set; }

    /// <summary>Whether the gathered pages end where a write has to end.</summary>
    public bool IsAtBoundary => _pages > 0 && (_first + _pages) * Page.Bytes % _length == 0;

    /// <summary>The memory in which to build the next page's image. The previous image must be complete.</summary>
    public byte* Next(long number)
    {
        if (IsAtBoundary || (_pages > 0 && number != _first + _pages))
            Flush();
        if (_pages == 0)
            _first = number;
        space.Forget(number);
        _buffer ??= Rent();
        // Native memory: the address stays valid after the fixed block.
        fixed (byte* memory = _buffer.Span)
            return memory + (_pages++ * Page.Bytes);
    }

    /// <summary>Writes the gathered pages.</summary>
    public void Flush()
    {
        if (_pages > 0)
        {
            file.Write(_buffer!.Span[..(_pages * Page.Bytes)], _first * Page.Bytes);
            _pending = (Math.Min(_pending.From, _first * Page.Bytes), Math.Max(_pending.To, (_first + _pages) * Page.Bytes));
            Counts = new WriteCounts(Counts.Pages + _pages, Counts.Writes + 1, Counts.Seeks + (_first == _end ? 0 : 1));
            _end = _first + _pages;
        }
        _pages = 0;
        if (_buffer is { } gathered)
            Pool.Add(gathered);
        _buffer = null;
    }

    /// <summary>
    /// Writes the gathered pages, and has the write-out of all pages since the last call begin. If it were left to the sync, the journal's writes would wait
    /// behind it. One call for pages that are scattered: each of them would be a request to the device of its own.
    /// </summary>
    public void BeginWriteOut()
    {
        Flush();
        if (_pending.From < _pending.To)
            file.BeginWriteOut(_pending.From, _pending.To - _pending.From);
        _pending = NothingPending;
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _buffer?.Dispose();
        _buffer = null;
    }

    private AlignedBuffer Rent()
    {
        if (!Pool.TryTake(out var buffer))
            return new AlignedBuffer(_length);
        if (buffer.Length == _length)
            return buffer;
        // The buffer was returned by a store with buffers of another length.
        buffer.Dispose();
        return new AlignedBuffer(_length);
    }
}

/// <summary>How a checkpoint was written.</summary>
/// <param name="Pages">Pages, with those of the free map.</param>
/// <param name="Writes">Calls that wrote them.</param>
/// <param name="Seeks">Calls that did not continue where the one before had ended.</param>
internal readonly record struct WriteCounts(long Pages, int Writes, int Seeks);
