using System.Buffers;

namespace Grpc.Net.Client.Calls;

/// <summary>Bytes to be sent, in one array that grows as needed. Not thread-safe.</summary>
internal sealed class MessageBuffer : IBufferWriter<byte>
{
    private const int FirstBytes = 256;

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

    /// <summary>Removes what was written after <see cref="Count"/> had this value.</summary>
    public void Truncate(int count) => Count = count;

    /// <summary>Empties it. Must be called only when nobody reads it any more.</summary>
    public void Clear()
    {
        Count = 0;
        CallBuffers.Release(ref _bytes);
    }

    private void Reserve(int sizeHint)
    {
        var needed = Count + Math.Max(sizeHint, 1);
        if (needed > _bytes.Length)
            CallBuffers.Grow(ref _bytes, Math.Max(needed, Math.Max(FirstBytes, _bytes.Length * 2)), 0, Count);
    }
}
