// Frames that wait for their flush, outside Kestrel's pipe. Kestrel counts what is in the pipe and not flushed as data to send, finds none of it, and looks
// again without a pause until the flush comes: a thread of the pool for each connection, and the flush may itself be waiting for one. On a busy machine a leader
// could say nothing for seconds. So what enters the pipe is flushed by the same thread at once. Used under the gate of its ResponseOutput.
using System.Buffers;
using System.IO.Pipelines;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>A block of memory for frames, in front of a pipe. What does not fit goes into the pipe, behind what waited.</summary>
internal sealed class StagedFrames : IBufferWriter<byte>
{
    /// <summary>Half of what Kestrel buffers for a response by default, so that it always has something to send.</summary>
    private const int BytesMax = 32 * 1024;

    private PipeWriter? _pipe;
    private byte[]? _block;
    private int _bytes;

    /// <summary>Whether there is nothing to flush.</summary>
    public bool IsEmpty => _bytes == 0 && !MustFlush;

    /// <summary>Whether some of it is in the pipe, and is to be flushed before the gate is left.</summary>
    public bool MustFlush { get; private set; }

    /// <summary>Serves a call whose response goes into this pipe.</summary>
    public void Begin(PipeWriter pipe) => _pipe = pipe;

    /// <summary>Forgets the call, and what waits.</summary>
    public void End()
    {
        _pipe = null;
        Clear();
    }

    /// <summary>Puts what waits into the pipe.</summary>
    public void MoveToPipe()
    {
        if (_bytes > 0)
            _pipe!.Write(_block.AsSpan(0, _bytes));
        Clear();
    }

    public Memory<byte> GetMemory(int sizeHint = 0)
    {
        if (MustFlush)
            return _pipe!.GetMemory(sizeHint);
        _block ??= ArrayPool<byte>.Shared.Rent(BytesMax);
        if (_block.Length - _bytes >= Math.Max(sizeHint, 1))
            return _block.AsMemory(_bytes);
        MoveToPipe();
        MustFlush = true;
        return _pipe!.GetMemory(sizeHint);
    }

    public Span<byte> GetSpan(int sizeHint = 0) => GetMemory(sizeHint).Span;

    public void Advance(int count)
    {
        if (MustFlush)
            _pipe!.Advance(count);
        else
            _bytes += count;
    }

    private void Clear()
    {
        if (_block is not null)
            ArrayPool<byte>.Shared.Return(_block);
        (_block, _bytes, MustFlush) = (null, 0, false);
    }
}
