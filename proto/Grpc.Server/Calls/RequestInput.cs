// What arrives of a request: its bytes, its messages, and how many bytes of it are counted. Pooled with its call and used by the call's own thread, except
// for CancelRead.
using System.Buffers;
using System.IO.Pipelines;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Shared;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Reads the only message of a request. Streams are read by <see cref="RequestStreamReader{T}"/>, which parses and counts its messages here.</summary>
internal sealed class RequestInput
{
    /// <summary>Kestrel's default limit of a request body, which must be lifted in a server that accepts larger messages.</summary>
    private const int BodyBytesMaxOfServer = 30_000_000;

    /// <summary>
    /// An uncompressed message up to this size is not counted once it has arrived. Its caller had to send as many bytes, and it mostly arrives in one
    /// piece.
    /// </summary>
    private const int UncountedBytes = 64 << 10;

    private readonly ServerCall _call;
    private readonly FramePayload _payload = new();
    private readonly HeldMessage? _arriving;
    private long _onlyBytes;

    public RequestInput(ServerCall call)
    {
        _call = call;
        if (call.Settings.Memory is not null)
            _arriving = new HeldMessage(call.EndSlow);
    }

    /// <summary>The request's bytes.</summary>
    public PipeReader Body { get; private set; } = null!;

    /// <summary>Largest message of the request, measured uncompressed.</summary>
    public int BytesMax { get; private set; }

    /// <summary>Name of the compression of the request's messages.</summary>
    public string? Encoding { get; private set; }

    /// <summary>Whether the request may have many messages.</summary>
    public bool IsStream { get; private set; }

    /// <summary>Whether a read of the only message is in progress, until the bytes that it brought are given back. A failure of I/O then means that the caller went away.</summary>
    public bool IsReading { get; private set; }

    public void Begin(IFeatureCollection features, PipeReader body, string? encoding, int bytesMax)
    {
        (Body, Encoding, BytesMax) = (body, encoding, bytesMax);
        IsStream = false;
        IsReading = false;
        _onlyBytes = 0;
        // The minimum data rate stays, so a unary request that stalls is ended.
        if (bytesMax > BodyBytesMaxOfServer)
            LiftSizeLimit(features);
    }

    /// <summary>Forgets the request.</summary>
    public void End()
    {
        Release();
        Body = null!;
    }

    /// <summary>Lifts the limits of the request, because a stream may be slow and of any length.</summary>
    public void LiftLimits(IFeatureCollection features)
    {
        IsStream = true;
        if (features.Get<IHttpMinRequestBodyDataRateFeature>() is { } rate)
            rate.MinDataRate = null;
        LiftSizeLimit(features);
    }

    /// <summary>Reads more of the request.</summary>
    public ValueTask<ReadResult> ReadAsync()
    {
        IsReading = true;
        return Body.ReadAsync();
    }

    /// <summary>Ends a read that is in progress. Any thread.</summary>
    public void CancelRead()
    {
        try
        {
            Body.CancelPendingRead();
        }
        catch (IOException)
        {
            // The caller has reset the stream, which ends its reads.
        }
    }

    /// <summary>Takes the only message of a request that is not a stream. Returns true when the message and the end of the request have arrived.</summary>
    /// <exception cref="RpcException">The request is not one message within the limit.</exception>
    public bool TryTakeOnly<T>(ReadResult read, Marshaller<T> marshaller, ref T? message)
        where T : class
    {
        var buffer = read.Buffer;
        var end = buffer.End;
        if (message is null && FrameFormat.TryRead(ref buffer, BytesMax, out var isCompressed, out var payload))
        {
            message = Deserialize(payload, isCompressed, marshaller, out var countedBytes);
            // Also a message that is too small to be counted once it is served.
            _onlyBytes = Math.Max(countedBytes, payload.Length);
        }
        if (message is not null && !buffer.IsEmpty)
            throw new RpcException(new Status(StatusCode.Internal, "More data came after the only message of the request."));
        // The message is kept while the caller has not ended the request.
        Hold(read.IsCompleted ? 0 : buffer.Length + _onlyBytes);
        // Also throws if the caller has reset the stream.
        Body.AdvanceTo(buffer.Start, end);
        IsReading = false;
        _call.ThrowIfPastDeadline();
        if (read.IsCompleted && message is null)
            throw new RpcException(new Status(StatusCode.Internal, "The request ended before its message was complete."));
        return read.IsCompleted;
    }

    /// <summary>Reads the only message of a request that is not a stream.</summary>
    /// <exception cref="RpcException">The request is not one message within the limit.</exception>
    public async Task<T> ReadOnlyAsync<T>(Marshaller<T> marshaller)
        where T : class
    {
        T? message = null;
        while (!TryTakeOnly(await ReadAsync().ConfigureAwait(false), marshaller, ref message))
            continue;
        return message!;
    }

    /// <summary>Parses a message in place.</summary>
    /// <param name="payload">The received bytes.</param>
    /// <param name="isCompressed">Whether its header says that it is compressed.</param>
    /// <param name="marshaller">Creates the message.</param>
    /// <param name="countedBytes">The size to count, or 0 if it is too small. A compressed message is always counted, because it cost its caller next to
    /// nothing.</param>
    /// <exception cref="RpcException">The bytes are not such a message, or there is no room to decompress them.</exception>
    public T Deserialize<T>(ReadOnlySequence<byte> payload, bool isCompressed, Marshaller<T> marshaller, out long countedBytes)
    {
        try
        {
            if (isCompressed)
                return DeserializeCompressed(payload, marshaller, out countedBytes);
            countedBytes = payload.Length > UncountedBytes ? payload.Length : 0;
            return _payload.Read(payload, marshaller);
        }
        catch (RpcException failure) when (_call.Settings.Unreadable is not null && failure.Status.DebugException is InvalidProtocolBufferException)
        {
            throw _call.Settings.Unreadable.ToException();
        }
    }

    /// <summary>Counts the bytes of an incomplete message in the buffers, before more of it is requested; 0 means none.</summary>
    /// <exception cref="RpcException">UNAVAILABLE: there is no room for more such messages.</exception>
    public void Hold(long bytes)
    {
        if (bytes == 0)
            Release();
        else if (_arriving is not null && !_call.Settings.Memory!.Arriving.TryHold(_arriving, bytes))
            throw new RpcException(new Status(StatusCode.Unavailable, "The server has reached its limit of large requests in progress; this one was not executed. Try again."));
        else if (_arriving is not null)
            _arriving.IsHeld = true;
    }

    /// <summary>Counts a message that has completely arrived until it is released; 0 means that it is too small.</summary>
    public void Keep(long bytes)
    {
        if (bytes == 0)
        {
            Release();
        }
        else if (_arriving is not null)
        {
            _call.Settings.Memory!.Arriving.Keep(_arriving, bytes);
            _arriving.IsHeld = true;
        }
    }

    /// <summary>Releases the counted bytes, because the buffers hold no request any more.</summary>
    public void Release()
    {
        if (_arriving is not { IsHeld: true })
            return;
        _arriving.IsHeld = false;
        _call.Settings.Memory!.Arriving.Release(_arriving);
    }

    // A separate method, because a closure is allocated at the start of the method that captures.
    private T DeserializeCompressed<T>(ReadOnlySequence<byte> payload, Marshaller<T> marshaller, out long countedBytes)
    {
        using var message = Decompression.Decompress(payload, Encoding, BytesMax, bytes => Hold(payload.Length + bytes));
        countedBytes = message.Bytes.Length;
        return _payload.Read(message.Bytes, marshaller);
    }

    private static void LiftSizeLimit(IFeatureCollection features)
    {
        if (features.Get<IHttpMaxRequestBodySizeFeature>() is { IsReadOnly: false } size)
            size.MaxRequestBodySize = null;
    }
}
