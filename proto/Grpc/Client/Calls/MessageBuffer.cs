using System.Buffers;

namespace Grpc.Net.Client.Calls;

/// <summary>Bytes to be sent, in one array of the shared pool that grows as needed. Not thread-safe.</summary>
internal sealed class MessageBuffer : IBufferWriter<byte>
{
    /// <summary>What is kept between messages; one large message does not stay with its stream.</summary>
    private const int KeptBytesMax = 128 * 1024;

    private const int FirstBytes = 1024;

    private byte[] _bytes = [];

    public int Count { get; private set; }

    public ReadOnlyMemory<byte> Written => _bytes.AsMemory(0, Count);

    public void Advance(int count) => Count += count;

    public Memory<byte> GetMemory(int sizeHint = 0)
    {
        Reserve(sizeHint);
        return _bytes.AsMemory(Count);
    }

    public Span<byte> GetSpan(int sizeHint = 0)
    {
        Reserve(sizeHint);
        return _bytes.AsSpan(Count);
    }

    /// <summary>Takes back what was written after a moment when <see cref="Count"/> was this.</summary>
    public void Truncate(int count) => Count = count;

    public void Clear()
    {
        Count = 0;
        if (_bytes.Length > KeptBytesMax)
            Free();
    }

    /// <summary>Gives the array back; to be called only when nobody reads it any more.</summary>
    public void Free()
    {
        Count = 0;
        if (_bytes.Length > 0)
            ArrayPool<byte>.Shared.Return(_bytes);
        _bytes = [];
    }

    private void Reserve(int sizeHint)
    {
        var needed = Count + Math.Max(sizeHint, 1);
        if (needed <= _bytes.Length)
            return;
        var larger = ArrayPool<byte>.Shared.Rent(Math.Max(needed, Math.Max(FirstBytes, _bytes.Length * 2)));
        _bytes.AsSpan(0, Count).CopyTo(larger);
        var count = Count;
        Free();
        _bytes = larger;
        Count = count;
    }
}
