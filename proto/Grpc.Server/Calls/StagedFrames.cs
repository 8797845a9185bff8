// Frames that wait for their flush, kept outside Kestrel's pipe. Kestrel counts unflushed data in the pipe as data to send, finds none of it, and looks again
// without a pause until the flush. That occupies a thread of the pool for each connection, while the flush may itself be waiting for a thread; on a busy
// machine a leader could be silent for seconds. So whatever is put into the pipe is flushed by the same thread at once. Used under the gate of its
// ResponseOutput.
using System.Buffers;
using System.IO.Pipelines;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>A block of memory for frames, in front of a pipe. What does not fit goes into the pipe, after what waited.</summary>
internal sealed class StagedFrames : IBufferWriter<byte>
{
    /// <summary>Half of what Kestrel buffers for a response by default, so that Kestrel always has something to send.</summary>
    private const int BytesMax = 32 * 1024;

    private PipeWriter? _pipe;
    private byte[]? _block;
    private int _bytes;

    /// <summary>Whether there is nothing to flush.</summary>
    public bool IsEmpty => _bytes == 0 && !MustFlush;

    /// <summary>Whether some of it is in the pipe and must be flushed before the gate is left.</summary>
    public bool MustFlush { get; private set; }

    /// <summary>Starts to serve a call whose response goes into this pipe.</summary>
    public void Begin(PipeWriter pipe) => _pipe = pipe;

    /// <summary>Forgets the call and drops what waits.</summary>
    public void End()
    {
        _pipe = null;
        Clear();
    }

    /// <summary>Moves what waits into the pipe.</summary>
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
