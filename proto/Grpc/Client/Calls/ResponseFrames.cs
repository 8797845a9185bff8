// The received bytes of a response: one array that is read into and split into frames. One reader.
using System.Buffers;
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>Buffers a response and finds its messages.</summary>
internal sealed class ResponseFrames
{
    private byte[] _bytes = [];
    private int _start;
    private int _end;

    public bool IsEmpty => _start == _end;

    /// <summary>Takes the next whole message; returns false if more must be read. It is valid until then.</summary>
    /// <exception cref="RpcException">INTERNAL: not a frame. RESOURCE_EXHAUSTED: larger than the limit.</exception>
    public bool TryTake(int messageBytesMax, out ReadOnlySequence<byte> payload, out bool isCompressed)
    {
        payload = default;
        isCompressed = false;
        if (_end - _start < FrameFormat.HeaderBytes)
            return false;
        var payloadBytes = FrameFormat.ReadHeader(_bytes.AsSpan(_start), messageBytesMax, out isCompressed);
        if (_end - _start - FrameFormat.HeaderBytes < payloadBytes)
            return false;
        payload = new ReadOnlySequence<byte>(_bytes, _start + FrameFormat.HeaderBytes, payloadBytes);
        _start += FrameFormat.HeaderBytes + payloadBytes;
        return true;
    }

    /// <summary>
    /// The memory to read into: space for the rest of the message that has begun, and at least for some bytes. Behind a large message nothing is read, so that
    /// <see cref="ReleaseLarge"/> has nothing to keep.
    /// </summary>
    /// <param name="bytesMin">Size of the first buffer.</param>
    /// <param name="messageBytesMax">The maximum size of a message.</param>
    public Memory<byte> Room(int bytesMin, int messageBytesMax)
    {
        var held = _end - _start;
        var needed = Math.Max(bytesMin, held + 1);
        if (held >= FrameFormat.HeaderBytes)
            needed = Math.Max(needed, FrameFormat.HeaderBytes + FrameFormat.ReadHeader(_bytes.AsSpan(_start), messageBytesMax, out _));
        if (_bytes.Length < needed)
            CallBuffers.Grow(ref _bytes, needed, _start, held);
        else if (_start > 0)
            _bytes.AsSpan(_start, held).CopyTo(_bytes);
        _start = 0;
        _end = held;
        return needed > CallBuffers.PooledBytesMax ? _bytes.AsMemory(_end, needed - held) : _bytes.AsMemory(_end);
    }

    public void Filled(int count) => _end += count;

    /// <summary>
    /// Releases the array of a large message that was taken and is not read any more. The next one may be long in coming, and of many open streams each kept such an
    /// array. Must not be called while a read is in progress.
    /// </summary>
    public void ReleaseLarge()
    {
        if (IsEmpty && _bytes.Length > CallBuffers.PooledBytesMax)
            Clear();
    }

    /// <summary>Empties it. Must not be called while a read is in progress.</summary>
    public void Clear()
    {
        _start = 0;
        _end = 0;
        CallBuffers.Release(ref _bytes);
    }
}
