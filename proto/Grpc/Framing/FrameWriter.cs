// Serializes messages into frames, in place if their length is announced. One for each call or stream, used under its lock.
using System.Buffers;
using Grpc.Core;

namespace Grpc.Shared;

/// <summary>The context to which marshallers write. It puts the header before the message and checks the message's length.</summary>
internal sealed class FrameWriter : SerializationContext, IBufferWriter<byte>
{
    /// <summary>Frames up to this size, one block of a pipe, are written into contiguous memory and appear in the output only when complete.</summary>
    private const int ContiguousBytesMax = 4096;

    private IBufferWriter<byte> _output = null!;
    private ArrayBufferWriter<byte>? _unannounced;
    private Memory<byte> _contiguous;
    private int _messageBytesMax;
    private int _announcedBytes;
    private int _writtenBytes;
    private Mode _mode;

    private enum Mode
    {
        Unannounced,
        Contiguous,
        Streaming,
        Completed,
    }

    /// <summary>Called with the length of each message before any of it is written; may refuse the message with an exception. May be null.</summary>
    public Action<int>? Announced { get; init; }

    /// <summary>Whether a failed <see cref="Write"/> left part of a frame in the output, which cannot be removed.</summary>
    public bool LeftPartialFrame => _mode == Mode.Streaming;

    /// <summary>Whether the last <see cref="Write"/> put anything into the output: the frame, or part of it if it failed.</summary>
    public bool HasWritten => _mode is Mode.Streaming or Mode.Completed;

    /// <summary>Writes one frame; returns its length in bytes.</summary>
    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: larger than the limit; nothing was written.</exception>
    /// <exception cref="InvalidOperationException">The marshaller wrote a length other than it announced.</exception>
    public int Write<T>(IBufferWriter<byte> output, T message, Marshaller<T> marshaller, int messageBytesMax)
    {
        _output = output;
        _messageBytesMax = messageBytesMax;
        _announcedBytes = -1;
        _writtenBytes = 0;
        _mode = Mode.Unannounced;
        marshaller.ContextualSerializer(message, this);
        if (_mode != Mode.Completed)
            throw new InvalidOperationException("The marshaller did not complete the message.");
        _output = null!;
        return FrameFormat.HeaderBytes + _writtenBytes;
    }

    /// <summary>Begins a frame whose payload its caller writes behind it. Until <see cref="End"/> it is a part of a frame.</summary>
    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: larger than the limit; nothing was written.</exception>
    public void Begin(IBufferWriter<byte> output, int payloadBytes, int messageBytesMax)
    {
        _messageBytesMax = messageBytesMax;
        _mode = Mode.Unannounced;
        CheckLength(payloadBytes);
        FrameFormat.WriteHeader(output.GetSpan(FrameFormat.HeaderBytes), payloadBytes);
        output.Advance(FrameFormat.HeaderBytes);
        _mode = Mode.Streaming;
    }

    /// <summary>The payload of the frame that was begun is complete.</summary>
    public void End() => _mode = Mode.Completed;

    public override void SetPayloadLength(int payloadLength)
    {
        if (_announcedBytes >= 0)
            throw new InvalidOperationException("The length of this message has already been announced.");
        CheckLength(payloadLength);
        _announcedBytes = payloadLength;
        var frameBytes = FrameFormat.HeaderBytes + payloadLength;
        if (frameBytes <= ContiguousBytesMax)
        {
            _contiguous = _output.GetMemory(frameBytes);
            FrameFormat.WriteHeader(_contiguous.Span, payloadLength);
            _mode = Mode.Contiguous;
        }
        else
        {
            FrameFormat.WriteHeader(_output.GetSpan(FrameFormat.HeaderBytes), payloadLength);
            _output.Advance(FrameFormat.HeaderBytes);
            _mode = Mode.Streaming;
        }
    }

    public override IBufferWriter<byte> GetBufferWriter() => this;

    public override void Complete()
    {
        switch (_mode)
        {
            case Mode.Unannounced:
                CompleteUnannounced();
                break;
            case Mode.Contiguous when _writtenBytes == _announcedBytes:
                _output.Advance(FrameFormat.HeaderBytes + _writtenBytes);
                _contiguous = default;
                break;
            case Mode.Streaming when _writtenBytes == _announcedBytes:
                break;
            default:
                throw new InvalidOperationException($"The marshaller announced {_announcedBytes} bytes and wrote {_writtenBytes}.");
        }
        _mode = Mode.Completed;
    }

    public override void Complete(byte[] payload)
    {
        SetPayloadLength(payload.Length);
        this.Write(payload);
        Complete();
    }

    void IBufferWriter<byte>.Advance(int count)
    {
        if (_mode == Mode.Streaming)
            _output.Advance(count);
        else if (_mode == Mode.Unannounced)
            _unannounced!.Advance(count);
        _writtenBytes += count;
    }

    Memory<byte> IBufferWriter<byte>.GetMemory(int sizeHint) => _mode switch
    {
        Mode.Contiguous => Rest(sizeHint),
        Mode.Streaming => _output.GetMemory(sizeHint),
        _ => (_unannounced ??= new ArrayBufferWriter<byte>()).GetMemory(sizeHint),
    };

    Span<byte> IBufferWriter<byte>.GetSpan(int sizeHint) => _mode switch
    {
        Mode.Contiguous => Rest(sizeHint).Span,
        Mode.Streaming => _output.GetSpan(sizeHint),
        _ => (_unannounced ??= new ArrayBufferWriter<byte>()).GetSpan(sizeHint),
    };

    private Memory<byte> Rest(int sizeHint)
    {
        var rest = _contiguous[(FrameFormat.HeaderBytes + _writtenBytes)..];
        if (rest.Length < Math.Max(sizeHint, 1))
            throw new InvalidOperationException($"The marshaller announced {_announcedBytes} bytes and writes more.");
        return rest;
    }

    private void CompleteUnannounced()
    {
        var buffered = _unannounced;
        CheckLength(_writtenBytes);
        FrameFormat.WriteHeader(_output.GetSpan(FrameFormat.HeaderBytes), _writtenBytes);
        _output.Advance(FrameFormat.HeaderBytes);
        if (buffered is not null)
            _output.Write(buffered.WrittenSpan);
        _unannounced = null;
    }

    private void CheckLength(int payloadBytes)
    {
        if (payloadBytes > _messageBytesMax)
            throw new RpcException(new Status(StatusCode.ResourceExhausted, $"Sending message of {payloadBytes} bytes exceeds the maximum of {_messageBytesMax}."));
        Announced?.Invoke(payloadBytes);
    }
}
