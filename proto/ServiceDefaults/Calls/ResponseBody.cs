// What leaves as the response of a call: the frames that gRPC writes, on their way to Kestrel's pipe.
//  - A large message that is encoded already is written in pieces, each when the caller has read those before. As a whole it would be a copy in the pipe of
//    each stream that is not read, which no budget counts.
//  - A large response of a call that does not stream responses is counted until the connection has taken it. If its caller reads slowly, the call is ended
//    when another one needs the room.
// One for each call. Used by one thread at a time, as gRPC requires of those that write.
using System.Buffers;
using System.Buffers.Binary;
using System.IO.Pipelines;
using Grpc.Core;
using KvCluster.Wire;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>The body of a response, in front of the server's.</summary>
/// <param name="inner">The server's.</param>
/// <param name="leaving">Counts the only response of a call; null if it is not counted, or the responses are a stream.</param>
/// <param name="reset">Ends the call; null if the server cannot.</param>
internal sealed class ResponseBody(IHttpResponseBodyFeature inner, HeldMessages? leaving, IHttpResetFeature? reset)
    : PipeWriter, IHttpResponseBodyFeature, IEncodedOutput
{
    /// <summary>A response up to this size is not waited for and not counted.</summary>
    private const int UnwatchedBytes = 16 << 10;

    /// <summary>An encoded message of more bytes is written in pieces. For smaller ones, such as most pages, a copy costs less than the waits.</summary>
    private const int WholeBytesMax = 256 << 10;

    /// <summary>The bytes of a piece: what a stream that is not read has in the pipe.</summary>
    private const int PieceBytes = 64 << 10;

    /// <summary>How long a failed call waits for the caller to read what was written before its status.</summary>
    private static readonly TimeSpan StatusPatience = TimeSpan.FromSeconds(1);

    private readonly PipeWriter _pipe = inner.Writer;

    // Where the header of the next message is written, until it is complete.
    private Memory<byte> _header;

    // Bytes of the message that was begun which are not in the pipe yet.
    private int _left;
    private IEncodedMessage? _encoded;
    private HeldMessage? _held;
    private Task _flushing = Task.CompletedTask;

    /// <summary>Whether the response ended in the middle of a message. It can then only be reset.</summary>
    public bool LeftPartialMessage => _left > 0;

    Stream IHttpResponseBodyFeature.Stream => inner.Stream;

    PipeWriter IHttpResponseBodyFeature.Writer => this;

    public override bool CanGetUnflushedBytes => _pipe.CanGetUnflushedBytes;

    public override long UnflushedBytes => _pipe.UnflushedBytes;

    public bool TryTake(IEncodedMessage message)
    {
        if (message.Memory.Length <= WholeBytesMax)
            return false;
        _encoded = message;
        return true;
    }

    public override Memory<byte> GetMemory(int sizeHint = 0)
    {
        if (_left > 0)
            return _pipe.GetMemory(sizeHint);
        _header = _pipe.GetMemory(Math.Max(sizeHint, FrameFormat.HeaderBytes));
        return _header;
    }

    public override Span<byte> GetSpan(int sizeHint = 0) => GetMemory(sizeHint).Span;

    /// <exception cref="RpcException">UNAVAILABLE: there is no room for the response that begins. Nothing of it was written.</exception>
    public override void Advance(int bytes)
    {
        if (_left > 0)
        {
            if (bytes > _left)
                throw new InvalidOperationException($"The message has {_left} bytes left, and {bytes} were written.");
            _left -= bytes;
        }
        else if (bytes == FrameFormat.HeaderBytes)
        {
            var length = BinaryPrimitives.ReadInt32BigEndian(_header.Span[1..]);
            Hold(length);
            _left = length;
        }
        else if (bytes > 0)
        {
            throw new InvalidOperationException($"The header of a message has {FrameFormat.HeaderBytes} bytes, and {bytes} were written.");
        }
        _pipe.Advance(bytes);
    }

    public override ValueTask<FlushResult> FlushAsync(CancellationToken cancellationToken = default)
    {
        if (_encoded is { } message)
        {
            _encoded = null;
            return Tracked(SendPiecesAsync(message, cancellationToken));
        }
        var flush = _pipe.FlushAsync(cancellationToken);
        return flush.IsCompleted ? flush : Tracked(flush.AsTask());
    }

    public override void CancelPendingFlush() => _pipe.CancelPendingFlush();

    public override void Complete(Exception? exception = null) => _pipe.Complete(exception);

    public override ValueTask CompleteAsync(Exception? exception = null) => _pipe.CompleteAsync(exception);

    void IHttpResponseBodyFeature.DisableBuffering() => inner.DisableBuffering();

    Task IHttpResponseBodyFeature.StartAsync(CancellationToken cancellationToken) => inner.StartAsync(cancellationToken);

    Task IHttpResponseBodyFeature.SendFileAsync(string path, long offset, long? count, CancellationToken cancellationToken) =>
        inner.SendFileAsync(path, offset, count, cancellationToken);

    Task IHttpResponseBodyFeature.CompleteAsync() => inner.CompleteAsync();

    /// <summary>Begins to send what has to leave before the call can end. False: the caller has not read it in time.</summary>
    /// <param name="isPatient">Whether the caller may take all the time it needs.</param>
    public async ValueTask<bool> LeavesAsync(bool isPatient)
    {
        if (_encoded is not null || _held is not null)
            _ = FlushAsync();
        if (isPatient || _flushing.IsCompleted)
            return true;
        await _flushing.WaitAsync(StatusPatience).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        return _flushing.IsCompleted;
    }

    /// <summary>Completes when nothing of the response is being written any more. A failure means that the caller is gone.</summary>
    public async ValueTask DrainAsync() => await _flushing.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);

    /// <summary>Forgets the response.</summary>
    public void End()
    {
        _encoded?.Return();
        _encoded = null;
        if (_held is null)
            return;
        leaving!.Release(_held);
        _held = null;
    }

    private ValueTask<FlushResult> Tracked(Task<FlushResult> flushing)
    {
        _flushing = flushing;
        return new ValueTask<FlushResult>(flushing);
    }

    private async Task<FlushResult> SendPiecesAsync(IEncodedMessage message, CancellationToken cancellationToken)
    {
        try
        {
            var rest = message.Memory;
            while (true)
            {
                var piece = rest[..Math.Min(rest.Length, PieceBytes)];
                _pipe.Write(piece.Span);
                rest = rest[piece.Length..];
                var result = await _pipe.FlushAsync(cancellationToken).ConfigureAwait(false);
                if (result.IsCompleted || result.IsCanceled)
                    return result;
                _left = rest.Length;
                if (rest.IsEmpty)
                    return result;
            }
        }
        catch (InvalidOperationException)
        {
            // The deadline passed meanwhile, and the response was completed with that status.
            return new FlushResult(isCanceled: false, isCompleted: true);
        }
        finally
        {
            message.Return();
        }
    }

    private void Hold(int bytes)
    {
        if (leaving is null || bytes <= UnwatchedBytes)
            return;
        var held = new HeldMessage(() => reset?.Reset(CallPolicy.TooSlowCode));
        if (!leaving.TryHold(held, bytes))
            throw new RpcException(new Status(StatusCode.Unavailable, "The server has reached its limit of large responses that wait to be read. Try again."));
        _held = held;
    }
}
