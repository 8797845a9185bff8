using System.Buffers;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Compresses values that a batch puts, where that saves a quarter of them. It is a matter of one store: records, and what readers get, have the values as they
/// were put. Used by the batch; writer only.
/// </summary>
internal sealed class ValueCompression
{
    /// <summary>Memory that is kept between batches. It suffices for most values.</summary>
    private const int KeptBytesMax = 64 << 10;

    private byte[] _buffer = [];

    /// <summary>
    /// Compresses a value that is passed in two parts, of which the first stays as it is. False if that does not pay, or if the value is too short for it.
    /// </summary>
    /// <param name="header">The first part.</param>
    /// <param name="body">The second part.</param>
    /// <param name="compressed">The length of the value, and its compressed bytes. Valid until the next value is compressed, or the batch ends.</param>
    public bool TryCompress(ReadOnlySpan<byte> header, ReadOnlySpan<byte> body, out ReadOnlySpan<byte> compressed)
    {
        compressed = default;
        if (!CompressedValue.MayBe(header, body))
            return false;
        var needed = CompressedValue.BufferBytes(header, body);
        if (_buffer.Length < needed)
            Take(needed);
        var bytes = CompressedValue.TryWrite(_buffer, header, body);
        compressed = _buffer.AsSpan(0, bytes);
        return bytes > 0;
    }

    /// <summary>Returns the memory of large values: a batch has ended, or begins after one that was given up.</summary>
    public void Forget()
    {
        if (_buffer.Length > KeptBytesMax)
            Take(0);
    }

    private void Take(int bytes)
    {
        ArrayPool<byte>.Shared.Return(_buffer);
        _buffer = ArrayPool<byte>.Shared.Rent(bytes);
    }
}
