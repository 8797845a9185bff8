// What arrives of the request of a call, on its way from Kestrel's pipe to gRPC: the messages are limited in size, decompressed and counted. gRPC takes one
// message at a time, and every read begins with a message. One for each call, used by the thread that reads.
using System.Buffers;
using System.IO.Pipelines;
using System.Runtime.CompilerServices;
using Grpc.Core;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>The body of a request, in front of the server's.</summary>
internal sealed class RequestBody : PipeReader, IRequestBodyPipeFeature
{
    /// <summary>Kestrel's default limit of a request body, which must be lifted in a server that accepts larger messages.</summary>
    private const int BodyBytesMaxOfServer = 30_000_000;

    /// <summary>
    /// An uncompressed message of a stream up to this size is not counted once it has arrived. Its caller had to send as many bytes, and it mostly arrives in
    /// one piece.
    /// </summary>
    private const int UncountedBytes = 64 << 10;

    private const string NoRoom = "The server has reached its limit of large requests in progress; this one was not executed. Try again.";

    private readonly HttpContext _context;
    private readonly ServedMethod _method;
    private readonly HeldMessages? _arriving;
    private readonly RequestSizes? _sizes;
    private readonly IHttpResetFeature? _reset;
    private readonly PipeReader _inner;
    private readonly long _beginMs = Environment.TickCount64;

    // The bytes read last, whether they are the last ones, and the end of the message at their front; null if that message is not whole.
    private ReadOnlySequence<byte> _read;
    private bool _isLast;
    private SequencePosition? _messageEnd;
    private long _countedBytes;

    // The message at the front as gRPC gets it, if it was compressed.
    private byte[]? _decompressed;

    // Set once the only message of a request that is not a stream has been taken.
    private bool _isTaken;
    private long _takenBytes;

    private HeldMessage? _message;
    private bool _isHeld;
    private bool _isKept;
    private RpcException? _refusal;

    /// <param name="context">The request.</param>
    /// <param name="method">The method called.</param>
    /// <param name="arriving">Counts what arrives; null if it is not counted.</param>
    /// <param name="sizes">Creates the error for a message that is too large; null if gRPC's own is used.</param>
    public RequestBody(HttpContext context, ServedMethod method, HeldMessages? arriving, RequestSizes? sizes)
    {
        (_context, _method, _arriving, _sizes) = (context, method, arriving, sizes);
        // Looked up here, and not by the thread that ends the call.
        _reset = context.Features.Get<IHttpResetFeature>();
        _inner = context.Features.GetRequiredFeature<IRequestBodyPipeFeature>().Reader;
        // The minimum data rate stays, so a request that stalls is ended. Of streams gRPC lifts both.
        if (method.RequestBytesMax > BodyBytesMaxOfServer && context.Features.Get<IHttpMaxRequestBodySizeFeature>() is { IsReadOnly: false } size)
            size.MaxRequestBodySize = null;
    }

    /// <summary>Whether the handler was not called because the caller went away or the deadline passed while the request arrived.</summary>
    public bool WasGoneUnbegun { get; private set; }

    PipeReader IRequestBodyPipeFeature.Reader => this;

    /// <exception cref="RpcException">What arrives is not a message within the limits, there is no room for it, or the caller is gone.</exception>
    public override ValueTask<ReadResult> ReadAsync(CancellationToken cancellationToken = default)
    {
        if (_refusal is not null)
            throw _refusal;
        // The handler asks for the next message when it has finished with the one before.
        if (_isKept)
            Release();
        ValueTask<ReadResult> reading;
        try
        {
            reading = _inner.ReadAsync(cancellationToken);
        }
        catch (Exception failure) when (failure is IOException or ConnectionAbortedException)
        {
            throw Gone(failure);
        }
        return reading.IsCompletedSuccessfully ? new ValueTask<ReadResult>(Look(reading.Result)) : AwaitAsync(reading);
    }

    public override bool TryRead(out ReadResult result)
    {
        if (!_inner.TryRead(out result))
            return false;
        result = Look(result);
        return true;
    }

    public override void AdvanceTo(SequencePosition consumed) => AdvanceTo(consumed, consumed);

    public override void AdvanceTo(SequencePosition consumed, SequencePosition examined)
    {
        if (_decompressed is not null)
        {
            // gRPC got the whole message instead of what was read.
            ReturnDecompressed();
            consumed = examined = _messageEnd!.Value;
        }
        Count(_read.Slice(consumed).Length);
        _read = default;
        try
        {
            _inner.AdvanceTo(consumed, examined);
        }
        catch (Exception failure) when (failure is IOException or ConnectionAbortedException)
        {
            throw Gone(failure);
        }
    }

    public override void CancelPendingRead() => _inner.CancelPendingRead();

    public override void Complete(Exception? exception = null) => _inner.Complete(exception);

    public override ValueTask CompleteAsync(Exception? exception = null) => _inner.CompleteAsync(exception);

    /// <summary>Forgets the request.</summary>
    public void End()
    {
        Release();
        ReturnDecompressed();
    }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<ReadResult> AwaitAsync(ValueTask<ReadResult> reading)
    {
        ReadResult result;
        try
        {
            result = await reading.ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is IOException or ConnectionAbortedException)
        {
            throw Gone(failure);
        }
        return Look(result);
    }

    // Looks at the message at the front of what was read.
    private ReadResult Look(ReadResult result)
    {
        (_read, _isLast, _messageEnd, _countedBytes) = (result.Buffer, result.IsCompleted, null, 0);
        if (result.IsCanceled)
            return result;
        var rest = result.Buffer;
        // Bytes behind the only message are left to gRPC, which refuses them.
        if (!rest.IsEmpty && !_isTaken && TryTake(ref rest, out var isCompressed, out var payload))
        {
            _messageEnd = rest.Start;
            _countedBytes = payload.Length;
            if (isCompressed)
                result = Decompress(payload, rest.IsEmpty);
            else if (_method.HasRequestStream && payload.Length <= UncountedBytes)
                _countedBytes = 0;
        }
        if (_isLast && !_method.HasRequestStream && (_isTaken || _messageEnd is not null))
            ThrowIfGone();
        return result;
    }

    private bool TryTake(ref ReadOnlySequence<byte> rest, out bool isCompressed, out ReadOnlySequence<byte> payload)
    {
        try
        {
            return FrameFormat.TryRead(ref rest, _method.RequestBytesMax, out isCompressed, out payload);
        }
        catch (RpcException failure) when (IsTooLarge(failure))
        {
            throw _sizes!.TooLarge(_method.RequestBytesMax, _method.HasRequestStream);
        }
    }

    // gRPC would decompress the message before anything limits it.
    private ReadResult Decompress(ReadOnlySequence<byte> payload, bool isAlone)
    {
        try
        {
            using var message = Decompression.Decompress(
                payload, _context.Request.Headers.GrpcEncoding, _method.RequestBytesMax, bytes => HoldOrThrow(payload.Length + bytes));
            var length = (int)message.Bytes.Length;
            _decompressed = LargeArrays.Rent(FrameFormat.HeaderBytes + length);
            FrameFormat.WriteHeader(_decompressed, length);
            message.Bytes.CopyTo(_decompressed.AsSpan(FrameFormat.HeaderBytes));
            // Always, because it cost its caller next to nothing.
            _countedBytes = length;
            var frame = new ReadOnlySequence<byte>(_decompressed, 0, FrameFormat.HeaderBytes + length);
            return new ReadResult(frame, isCanceled: false, isCompleted: _isLast && isAlone);
        }
        catch (RpcException failure) when (IsTooLarge(failure))
        {
            throw _sizes!.TooLarge(_method.RequestBytesMax, _method.HasRequestStream);
        }
    }

    private bool IsTooLarge(RpcException failure) => _sizes is not null && failure.Status.DebugException is MessageTooLargeException;

    // Counts what is held after a message was taken or waited for.
    private void Count(long leftBytes)
    {
        var isTaken = _messageEnd is not null;
        if (_method.HasRequestStream)
        {
            if (isTaken)
                Keep();
            else
                Hold(leftBytes);
            return;
        }
        if (isTaken)
            (_isTaken, _takenBytes) = (true, _countedBytes);
        // The message is kept while the caller has not ended the request.
        Hold(_isLast ? 0 : leftBytes + _takenBytes);
    }

    private void HoldOrThrow(long bytes)
    {
        Hold(bytes);
        if (_refusal is not null)
            throw _refusal;
    }

    // If there is no room, the next read says so.
    private void Hold(long bytes)
    {
        if (_arriving is null)
            return;
        if (bytes == 0)
            Release();
        else if (_arriving.TryHold(_message ??= new HeldMessage(EndSlow), bytes))
            (_isHeld, _isKept) = (true, false);
        else
            _refusal = new RpcException(new Status(StatusCode.Unavailable, NoRoom));
    }

    // Counts the message of a stream that the handler has from here on.
    private void Keep()
    {
        if (_countedBytes == 0 || _arriving is null)
        {
            Release();
            return;
        }
        _arriving.Keep(_message ??= new HeldMessage(EndSlow), _countedBytes);
        (_isHeld, _isKept) = (true, true);
    }

    private void Release()
    {
        if (!_isHeld)
            return;
        (_isHeld, _isKept) = (false, false);
        _arriving!.Release(_message!);
    }

    // Called by the thread of a call that needs the room, under the lock of what is counted, so not after the release.
    private void EndSlow() => _reset?.Reset(CallPolicy.TooSlowCode);

    private void ReturnDecompressed()
    {
        if (_decompressed is null)
            return;
        LargeArrays.Return(_decompressed);
        _decompressed = null;
    }

    // A caller with a short deadline may be gone already. Its call must cost as little as possible, because it is likely to make the next one at once.
    private void ThrowIfGone()
    {
        if (_context.RequestAborted.IsCancellationRequested)
            throw Gone(cause: null);
        if (_context.Request.Headers.GrpcTimeout is { Count: 1 } timeout
            && GrpcTimeout.TryParse(timeout[0], out var limit)
            && Environment.TickCount64 - _beginMs >= limit.TotalMilliseconds)
        {
            WasGoneUnbegun = true;
            throw new RpcException(new Status(StatusCode.DeadlineExceeded, "The deadline passed."));
        }
    }

    private RpcException Gone(Exception? cause)
    {
        WasGoneUnbegun |= !_method.HasRequestStream;
        return new RpcException(new Status(StatusCode.Cancelled, "The caller went away.", cause));
    }
}
