// One call on Kestrel's features. Pooled: it belongs to Kestrel's HTTP/2 stream object and serves one call after the other, from Begin to End. Runs on
// threads of the pool, one at a time, except for the deadline's timer, which takes _deadlineGate.
using System.Buffers;
using System.IO.Pipelines;
using Google.Protobuf;
using Grpc.AspNetCore.Server.Hosting;
using Grpc.Core;
using Grpc.Shared;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>The context that handlers get, and the reader and writer of the request behind it.</summary>
internal sealed class ServerCall : ServerCallContext
{
    /// <summary>Kestrel's default limit of a request body, which must be lifted in a server that accepts larger messages.</summary>
    private const int BodyBytesMaxOfServer = 30_000_000;

    /// <summary>
    /// A unary response up to this size is sent with the end of its call. With a larger one the call waits until the connection has taken it.
    /// </summary>
    private const int UnwatchedBytes = 16 << 10;

    /// <summary>
    /// An uncompressed message up to this size is not counted once it has arrived. Its caller had to send as many bytes, and it mostly arrives in one
    /// piece.
    /// </summary>
    private const int UncountedBytes = 64 << 10;

    /// <summary>HTTP/2's ENHANCE_YOUR_CALM, which gRPC maps to RESOURCE_EXHAUSTED.</summary>
    private const int TooSlowCode = 0xb;

    /// <summary>How long a failed call waits for the caller to read what was written before its status.</summary>
    private static readonly TimeSpan StatusPatience = TimeSpan.FromSeconds(1);

    private readonly Lock _deadlineGate = new();
    private readonly FramePayload _payload = new();
    private readonly FrameWriter _frames;
    private readonly HeldMessage? _arriving;
    private readonly HeldMessage? _leaving;
    private IFeatureCollection _features = null!;
    private IHttpRequestFeature _request = null!;
    private IHttpResponseFeature _response = null!;
    private IHttpResponseBodyFeature _responseBody = null!;
    private IRequestBodyPipeFeature _requestBody = null!;
    private bool _isReading;
    private bool _isRequestStream;
    private long _onlyBytes;
    private bool _hasContent;
    private CallDeadline? _deadline;
    private bool _hasDeadline;
    private bool _deadlinePassed;
    private CancellationTokenSource? _cancellation;
    private CancellationTokenRegistration _abortRegistration;
    private Metadata? _requestHeaders;
    private Metadata? _responseTrailers;
    private Dictionary<object, object>? _userState;
    private Status _status;

    public ServerCall(CallSettings settings)
    {
        Settings = settings;
        Responses = new ResponseOutput(this);
        _frames = new FrameWriter { Announced = settings.Memory is null ? null : HoldLeaving };
        if (settings.Memory is not null)
            (_arriving, _leaving) = (new HeldMessage(EndSlow), new HeldMessage(EndSlow));
    }

    public CallSettings Settings { get; }

    /// <summary>The request's bytes.</summary>
    public PipeReader Body { get; private set; } = null!;

    /// <summary>The response's messages.</summary>
    public ResponseOutput Responses { get; }

    /// <summary>Name of the compression of the request's messages.</summary>
    public string? RequestEncoding { get; private set; }

    protected override string MethodCore => _request.Path;

    protected override string HostCore => _request.Headers.Host.ToString();

    protected override string PeerCore => PeerAddress.Format(_features.Get<IHttpConnectionFeature>());

    protected override DateTime DeadlineCore => _hasDeadline ? _deadline!.Utc : DateTime.MaxValue;

    protected override Metadata RequestHeadersCore => _requestHeaders ??= ReadHeaders();

    protected override Metadata ResponseTrailersCore => _responseTrailers ??= [];

    protected override WriteOptions? WriteOptionsCore { get; set; }

    protected override AuthContext AuthContextCore => PeerCertificate.Describe(_features.Get<ITlsConnectionFeature>()?.ClientCertificate);

    protected override IDictionary<object, object> UserStateCore => _userState ??= [];

    protected override Status StatusCore
    {
        get => _status;
        set => _status = value;
    }

    protected override CancellationToken CancellationTokenCore => _hasDeadline ? DeadlineToken() : RequestAborted;

    private CancellationToken RequestAborted => _features.GetRequiredFeature<IHttpRequestLifetimeFeature>().RequestAborted;

    /// <summary>Largest message of the request, measured uncompressed.</summary>
    public int RequestBytesMax { get; private set; }

    /// <summary>Starts to serve a request.</summary>
    public void Begin(IFeatureCollection features, IHttpRequestFeature request, int requestBytesMax)
    {
        RequestBytesMax = requestBytesMax;
        // Kestrel's stream object is its own feature collection and its own features, and is the same for every call on it.
        if (!ReferenceEquals(features, _features) || !ReferenceEquals(request, _request))
        {
            _features = features;
            _request = request;
            _response = features.GetRequiredFeature<IHttpResponseFeature>();
            _responseBody = features.GetRequiredFeature<IHttpResponseBodyFeature>();
            _requestBody = features.GetRequiredFeature<IRequestBodyPipeFeature>();
            features.Get<IConnectionUseFeature>()?.MarkUsed();
        }
        Body = _requestBody.Reader;
        _response.Headers.ContentType = "application/grpc";
        _status = Status.DefaultSuccess;
        _hasContent = false;
        _isReading = false;
        _isRequestStream = false;
        _onlyBytes = 0;
        // The minimum data rate stays, so a unary request that stalls is ended.
        if (RequestBytesMax > BodyBytesMaxOfServer && features.Get<IHttpMaxRequestBodySizeFeature>() is { IsReadOnly: false } size)
            size.MaxRequestBodySize = null;
        var headers = request.Headers;
        RequestEncoding = headers.GrpcEncoding;
        if (headers.GrpcTimeout is { Count: 1 } timeout && GrpcTimeout.TryParse(timeout[0], out var remaining))
            ArmDeadline(remaining);
    }

    /// <summary>Forgets the request.</summary>
    public void End()
    {
        DisarmDeadline();
        ReleaseArriving();
        ReleaseLeaving();
        Responses.End();
        Body = null!;
        _requestHeaders = null;
        _responseTrailers = null;
        _userState = null;
        WriteOptionsCore = null;
    }

    /// <exception cref="RpcException">UNIMPLEMENTED: the messages have an unknown compression.</exception>
    public void CheckEncoding()
    {
        if (RequestEncoding is null || Decompression.IsKnown(RequestEncoding))
            return;
        _response.Headers.GrpcAcceptEncoding = Decompression.Accepted;
        throw new RpcException(new Status(StatusCode.Unimplemented, $"The encoding '{RequestEncoding}' is not supported; {Decompression.Accepted} are."));
    }

    /// <summary>Lifts the limits of the request, because a stream may be slow and of any length.</summary>
    public void LiftRequestLimits()
    {
        _isRequestStream = true;
        if (_features.Get<IHttpMinRequestBodyDataRateFeature>() is { } rate)
            rate.MinDataRate = null;
        if (_features.Get<IHttpMaxRequestBodySizeFeature>() is { IsReadOnly: false } size)
            size.MaxRequestBodySize = null;
    }

    /// <summary>Reads more of the request. A failure of the read means that the caller went away.</summary>
    public ValueTask<ReadResult> ReadAsync()
    {
        _isReading = true;
        return Body.ReadAsync();
    }

    /// <summary>Takes the only message of a request that is not a stream. Returns true when the message and the end of the request have arrived.</summary>
    /// <exception cref="RpcException">The request is not one message within the limit.</exception>
    public bool TryTakeOnly<T>(ReadResult read, Marshaller<T> marshaller, ref T? message)
        where T : class
    {
        _isReading = false;
        var buffer = read.Buffer;
        var end = buffer.End;
        if (message is null && FrameFormat.TryRead(ref buffer, RequestBytesMax, out var isCompressed, out var payload))
        {
            message = Deserialize(payload, isCompressed, marshaller, out var countedBytes);
            // Also a message that is too small to be counted once it is served.
            _onlyBytes = Math.Max(countedBytes, payload.Length);
        }
        if (message is not null && !buffer.IsEmpty)
            throw new RpcException(new Status(StatusCode.Internal, "More data came after the only message of the request."));
        // The message is kept while the caller has not ended the request.
        HoldArriving(read.IsCompleted ? 0 : buffer.Length + _onlyBytes);
        Body.AdvanceTo(buffer.Start, end);
        ThrowIfPastDeadline();
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

    /// <summary>Writes the response of a call that does not stream responses; it is sent with the end of the call.</summary>
    public void WriteOnly<T>(T message, Marshaller<T> marshaller)
    {
        if (_status.StatusCode != StatusCode.OK || _deadlinePassed)
            return;
        try
        {
            _frames.Write(_responseBody.Writer, message, marshaller, Settings.ResponseBytesMax);
        }
        finally
        {
            _hasContent |= _frames.HasWritten;
        }
    }

    /// <summary>Whether the response is large. The caller then gets time to read it before the call ends, and its bytes are counted until then.</summary>
    public bool HasLargeResponse => _leaving is { IsHeld: true };

    /// <summary>Waits until the connection has taken what was written.</summary>
    public async ValueTask FlushOnlyAsync()
    {
        await _responseBody.Writer.FlushAsync().ConfigureAwait(false);
        ReleaseLeaving();
    }

    /// <summary>Counts the bytes of an incomplete message in the buffers, before more of it is requested; 0 means none.</summary>
    /// <exception cref="RpcException">UNAVAILABLE: there is no room for more such messages.</exception>
    public void HoldArriving(long bytes)
    {
        if (bytes == 0)
            ReleaseArriving();
        else if (_arriving is not null && !Settings.Memory!.Arriving.TryHold(_arriving, bytes))
            throw new RpcException(new Status(StatusCode.Unavailable, "The server has reached its limit of large requests in progress; this one was not executed. Try again."));
        else if (_arriving is not null)
            _arriving.IsHeld = true;
    }

    /// <summary>Counts a message that has completely arrived until it is released; 0 means that it is too small.</summary>
    public void KeepArrived(long bytes)
    {
        if (bytes == 0)
        {
            ReleaseArriving();
        }
        else if (_arriving is not null)
        {
            Settings.Memory!.Arriving.Keep(_arriving, bytes);
            _arriving.IsHeld = true;
        }
    }

    /// <summary>Starts a response that is a stream.</summary>
    public void OpenResponses() => Responses.Begin(_responseBody);

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
        catch (RpcException failure) when (Settings.Unreadable is not null && failure.Status.DebugException is InvalidProtocolBufferException)
        {
            throw Settings.Unreadable.ToException();
        }
    }

    // A separate method, because a closure is allocated at the start of the method that captures.
    private T DeserializeCompressed<T>(ReadOnlySequence<byte> payload, Marshaller<T> marshaller, out long countedBytes)
    {
        using var message = Decompression.Decompress(payload, RequestEncoding, RequestBytesMax, bytes => HoldArriving(payload.Length + bytes));
        countedBytes = message.Bytes.Length;
        return _payload.Read(message.Bytes, marshaller);
    }

    /// <summary>Ends the call after the handler returned.</summary>
    public void Succeed()
    {
        if (_deadlinePassed)
            _status = PastDeadline().Status;
    }

    /// <summary>Sets the status from an exception of the handler, or of a read or write for it.</summary>
    public void Fail(Exception failure, string method)
    {
        if (_deadlinePassed)
        {
            _status = PastDeadline().Status;
        }
        else if (failure is RpcException rpc)
        {
            if (Settings.Sizes is { } sizes && rpc.Status.DebugException is MessageTooLargeException)
                rpc = sizes.TooLarge(RequestBytesMax, _isRequestStream);
            _status = rpc.Status.StatusCode == StatusCode.OK ? new Status(StatusCode.Unknown, "A handler threw the status OK.", rpc) : rpc.Status;
            foreach (var entry in rpc.Trailers)
                ResponseTrailers.Add(entry);
        }
        else if ((_isReading && failure is IOException) || RequestAborted.IsCancellationRequested)
        {
            _status = new Status(StatusCode.Cancelled, "The caller went away.", failure);
        }
        else
        {
            CallLog.HandlerFailed(Settings.Log, method, failure);
            var text = Settings.SendsExceptionText ? $"Exception was thrown by handler. {failure.GetType().Name}: {failure.Message}" : "Exception was thrown by handler.";
            _status = new Status(StatusCode.Unknown, text, failure);
        }
    }

    /// <summary>Writes the status: in the trailers, or in the headers if nothing was sent yet.</summary>
    public void Finish()
    {
        DisarmDeadline();
        WriteStatus();
    }

    /// <inheritdoc cref="Finish"/>
    public async ValueTask FinishStreamAsync()
    {
        DisarmDeadline();
        var flushed = Responses.CompleteAsync();
        if (_status.StatusCode != StatusCode.OK && !flushed.IsCompleted && !await EndsSoonAsync(flushed).ConfigureAwait(false))
        {
            // A caller that does not read would not read the status either, and the call would never end.
            _features.Get<IHttpResetFeature>()?.Reset(TooSlowCode);
        }
        await flushed.ConfigureAwait(false);
        _hasContent |= Responses.HasContent;
        WriteStatus();
    }

    /// <exception cref="RpcException">DEADLINE_EXCEEDED: the deadline passed.</exception>
    public void ThrowIfPastDeadline()
    {
        if (_deadlinePassed)
            throw PastDeadline();
    }

    /// <summary>Whether a token is this call's own. If so, its cancellation ends reads by itself.</summary>
    public bool IsOwn(CancellationToken token) => _hasDeadline ? _cancellation is { } own && own.Token == token : token == RequestAborted;

    /// <summary>The error after the caller's connection or its stream broke.</summary>
    public static RpcException Gone(Exception? cause) => new(new Status(StatusCode.Cancelled, "The caller went away.", cause));

    /// <summary>Called by the deadline's timer.</summary>
    internal void PassDeadline()
    {
        lock (_deadlineGate)
        {
            if (!_hasDeadline || !_deadline!.HasPassed())
                return;
            _deadlinePassed = true;
            // Marked as cancelled at once, so that it is not reset for the next call. Its callbacks run on another thread, not under the lock.
            _ = _cancellation?.CancelAsync();
            CancelPendingRead();
        }
    }

    protected override Task WriteResponseHeadersAsyncCore(Metadata responseHeaders)
    {
        if (_response.HasStarted || _hasContent || Responses.HasContent)
            throw new InvalidOperationException("The response headers have already been sent.");
        AddTo(_response.Headers, responseHeaders);
        if (Responses.IsOpen)
            return Responses.SendHeadersAsync();
        _hasContent = true;
        return _responseBody.Writer.FlushAsync().AsTask();
    }

    private void HoldLeaving(int bytes)
    {
        if (bytes <= UnwatchedBytes)
            return;
        if (!Settings.Memory!.Leaving.TryHold(_leaving!, bytes))
            throw new RpcException(new Status(StatusCode.Unavailable, "The server has reached its limit of large responses that wait to be read. Try again."));
        _leaving!.IsHeld = true;
    }

    /// <summary>Releases the counted bytes, because the buffers hold no request any more.</summary>
    public void ReleaseArriving()
    {
        if (_arriving is not { IsHeld: true })
            return;
        _arriving.IsHeld = false;
        Settings.Memory!.Arriving.Release(_arriving);
    }

    private void ReleaseLeaving()
    {
        if (_leaving is not { IsHeld: true })
            return;
        _leaving.IsHeld = false;
        Settings.Memory!.Leaving.Release(_leaving);
    }

    // Called while another call looks for room.
    private void EndSlow() => _features.Get<IHttpResetFeature>()?.Reset(TooSlowCode);

    private static async ValueTask<bool> EndsSoonAsync(Task flushed)
    {
        await flushed.WaitAsync(StatusPatience).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        return flushed.IsCompleted;
    }

    private static RpcException PastDeadline() => new(new Status(StatusCode.DeadlineExceeded, "The deadline passed."));

    private static void AddTo(IHeaderDictionary headers, Metadata metadata)
    {
        foreach (var entry in metadata)
            headers.Append(entry.Key, BinaryHeader.Format(entry));
    }

    private void WriteStatus()
    {
        if ((_hasContent && _frames.LeftPartialFrame) || Responses.LeftPartialFrame)
        {
            _features.Get<IHttpResetFeature>()?.Reset(errorCode: 2);
            return;
        }
        var headers = _hasContent
            ? _features.GetRequiredFeature<IHttpResponseTrailersFeature>().Trailers
            : _response.Headers;
        headers.GrpcStatus = StatusText.Of(_status.StatusCode);
        if (_status.Detail.Length > 0)
            headers.GrpcMessage = StatusMessage.Encode(_status.Detail);
        if (_responseTrailers is not null)
            AddTo(headers, _responseTrailers);
    }

    private Metadata ReadHeaders()
    {
        var metadata = new Metadata();
        foreach (var (key, values) in _request.Headers)
        {
            if (key.StartsWith(':'))
                continue;
            foreach (var value in values)
                BinaryHeader.AddTo(metadata, key, value ?? "");
        }
        return metadata;
    }

    private void ArmDeadline(TimeSpan remaining)
    {
        lock (_deadlineGate)
        {
            _hasDeadline = true;
            (_deadline ??= new CallDeadline(this)).Arm(remaining);
        }
    }

    private void DisarmDeadline()
    {
        if (!_hasDeadline)
            return;
        lock (_deadlineGate)
        {
            _hasDeadline = false;
            _deadlinePassed = false;
            _deadline!.Disarm();
        }
        _abortRegistration.Dispose();
        _abortRegistration = default;
        if (_cancellation is { } cancellation && !cancellation.TryReset())
        {
            cancellation.Dispose();
            _cancellation = null;
        }
    }

    private void CancelPendingRead()
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

    private CancellationToken DeadlineToken()
    {
        lock (_deadlineGate)
        {
            if (_cancellation is null || _abortRegistration == default)
            {
                _cancellation ??= new CancellationTokenSource();
                _abortRegistration = RequestAborted.UnsafeRegister(static source => ((CancellationTokenSource)source!).Cancel(), _cancellation);
            }
            if (_deadlinePassed && !_cancellation.IsCancellationRequested)
                _cancellation.Cancel();
            return _cancellation.Token;
        }
    }
}
