// One call on Kestrel's features. Pooled: it belongs to Kestrel's HTTP/2 stream object and serves one call after the other, from Begin to End. Runs on
// threads of the pool, one at a time, except for the deadline's timer.
using Grpc.AspNetCore.Server.Hosting;
using Grpc.Core;
using Grpc.Shared;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// The context that handlers get. It composes the request (<see cref="RequestInput"/>), the response (<see cref="OnlyResponse"/> or
/// <see cref="ResponseOutput"/>) and the <see cref="CallDeadline"/> of a call, and decides its status.
/// </summary>
internal sealed class ServerCall : ServerCallContext
{
    /// <summary>HTTP/2's ENHANCE_YOUR_CALM, which gRPC maps to RESOURCE_EXHAUSTED.</summary>
    private const int TooSlowCode = 0xb;

    /// <summary>How long a failed call waits for the caller to read what was written before its status.</summary>
    private static readonly TimeSpan StatusPatience = TimeSpan.FromSeconds(1);

    private readonly OnlyResponse _only;
    private IFeatureCollection _features = null!;
    private IHttpRequestFeature _request = null!;
    private IHttpResponseFeature _response = null!;
    private IHttpResponseBodyFeature _responseBody = null!;
    private IRequestBodyPipeFeature _requestBody = null!;
    private CallDeadline? _deadline;
    private string? _peer;
    private Metadata? _requestHeaders;
    private Metadata? _responseTrailers;
    private Dictionary<object, object>? _userState;
    private Status _status;

    public ServerCall(CallSettings settings)
    {
        Settings = settings;
        Requests = new RequestInput(this);
        Responses = new ResponseOutput(this);
        _only = new OnlyResponse(this);
    }

    public CallSettings Settings { get; }

    /// <summary>The request's bytes and messages.</summary>
    public RequestInput Requests { get; }

    /// <summary>The messages of a response that is a stream.</summary>
    public ResponseOutput Responses { get; }

    /// <summary>Cancelled when the caller went away.</summary>
    public CancellationToken RequestAborted => _features.GetRequiredFeature<IHttpRequestLifetimeFeature>().RequestAborted;

    /// <summary>Whether the only response is large, so that the call has to wait until the caller has read it.</summary>
    public bool HasLargeResponse => _only.IsLarge;

    /// <summary>Whether the caller went away or the deadline passed.</summary>
    public bool IsGone => IsPastDeadline || RequestAborted.IsCancellationRequested;

    /// <summary>Whether it was not begun because the caller went away or the deadline passed.</summary>
    public bool WasGoneUnbegun { get; private set; }

    protected override string MethodCore => _request.Path;

    protected override string HostCore => _request.Headers.Host.ToString();

    // Kestrel's stream object stays with its connection.
    protected override string PeerCore => _peer ??= PeerAddress.Format(_features.Get<IHttpConnectionFeature>());

    protected override DateTime DeadlineCore => _deadline is { IsArmed: true } ? _deadline.Utc : DateTime.MaxValue;

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

    protected override CancellationToken CancellationTokenCore => _deadline is { IsArmed: true } ? _deadline.Token() : RequestAborted;

    private bool IsPastDeadline => _deadline is { HasPassed: true };

    private bool HasContent => _only.HasContent || Responses.HasContent;

    /// <summary>One entry of the metadata, which is cheaper than reading all of them; null if there is none.</summary>
    public string? HeaderOf(string name) => _request.Headers.TryGetValue(name, out var values) && values.Count > 0 ? values[0] : null;

    /// <summary>Starts to serve a request.</summary>
    public void Begin(IFeatureCollection features, IHttpRequestFeature request, int requestBytesMax)
    {
        // Kestrel's stream object is its own feature collection and its own features, and is the same for every call on it.
        if (!ReferenceEquals(features, _features) || !ReferenceEquals(request, _request))
        {
            _features = features;
            _request = request;
            _response = features.GetRequiredFeature<IHttpResponseFeature>();
            _responseBody = features.GetRequiredFeature<IHttpResponseBodyFeature>();
            _requestBody = features.GetRequiredFeature<IRequestBodyPipeFeature>();
            _peer = null;
            features.Get<IConnectionUseFeature>()?.MarkUsed();
        }
        _response.Headers.ContentType = "application/grpc";
        _status = Status.DefaultSuccess;
        var headers = request.Headers;
        Requests.Begin(features, _requestBody.Reader, headers.GrpcEncoding, requestBytesMax);
        _only.Begin();
        if (headers.GrpcTimeout is { Count: 1 } timeout && GrpcTimeout.TryParse(timeout[0], out var remaining))
            (_deadline ??= new CallDeadline(this)).Arm(remaining);
    }

    /// <summary>Forgets the request.</summary>
    public void End()
    {
        // Kestrel does not use the object of a stream again that was reset.
        if (_deadline is not null && RequestAborted.IsCancellationRequested)
        {
            _deadline.Dispose();
            _deadline = null;
        }
        _deadline?.Disarm();
        Requests.End();
        Responses.End();
        _only.End();
        _requestHeaders = null;
        _responseTrailers = null;
        _userState = null;
        WriteOptionsCore = null;
        WasGoneUnbegun = false;
    }

    /// <exception cref="RpcException">UNIMPLEMENTED: the messages have an unknown compression.</exception>
    public void CheckEncoding()
    {
        if (Requests.Encoding is not { } encoding || Decompression.IsKnown(encoding))
            return;
        _response.Headers.GrpcAcceptEncoding = Decompression.Accepted;
        throw new RpcException(new Status(StatusCode.Unimplemented, $"The encoding '{encoding}' is not supported; {Decompression.Accepted} are."));
    }

    /// <summary>Lifts the limits of the request, because a stream may be slow and of any length.</summary>
    public void LiftRequestLimits() => Requests.LiftLimits(_features);

    /// <summary>Writes the response of a call that does not stream responses; it is sent with the end of the call.</summary>
    public void WriteOnly<T>(T message, Marshaller<T> marshaller)
    {
        if (_status.StatusCode == StatusCode.OK && !IsPastDeadline)
            _only.Write(_responseBody, message, marshaller);
    }

    /// <summary>Waits until the connection has taken what was written.</summary>
    public ValueTask FlushOnlyAsync() => _only.FlushAsync(_responseBody);

    /// <summary>Starts a response that is a stream.</summary>
    public void OpenResponses() => Responses.Begin(_responseBody);

    /// <summary>Ends the call after the handler returned.</summary>
    public void Succeed()
    {
        if (IsPastDeadline)
            _status = PastDeadline().Status;
    }

    /// <summary>Sets the status from an exception of the handler, or of a read or write for it.</summary>
    public void Fail(Exception failure, string method)
    {
        if (IsPastDeadline)
        {
            _status = PastDeadline().Status;
        }
        else if (failure is RpcException rpc)
        {
            if (Settings.Sizes is { } sizes && rpc.Status.DebugException is MessageTooLargeException)
                rpc = sizes.TooLarge(Requests.BytesMax, Requests.IsStream);
            _status = rpc.Status.StatusCode == StatusCode.OK ? new Status(StatusCode.Unknown, "A handler threw the status OK.", rpc) : rpc.Status;
            foreach (var entry in rpc.Trailers)
                ResponseTrailers.Add(entry);
        }
        else if ((Requests.IsReading && failure is IOException) || RequestAborted.IsCancellationRequested)
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

    /// <summary>Its handler was not begun. Why is told by its status.</summary>
    public void NoteUnbegun() => WasGoneUnbegun = _status.StatusCode is StatusCode.Cancelled or StatusCode.DeadlineExceeded;

    /// <summary>Writes the status: in the trailers, or in the headers if nothing was sent yet.</summary>
    public void Finish()
    {
        _deadline?.Disarm();
        WriteStatus();
    }

    /// <summary>Ends a call whose caller is gone, without an exception.</summary>
    public void FinishGone()
    {
        _status = (IsPastDeadline ? PastDeadline() : Gone(cause: null)).Status;
        NoteUnbegun();
        Finish();
    }

    /// <inheritdoc cref="Finish"/>
    public async ValueTask FinishStreamAsync()
    {
        _deadline?.Disarm();
        var flushed = Responses.CompleteAsync();
        if (_status.StatusCode != StatusCode.OK && !flushed.IsCompleted && !await EndsSoonAsync(flushed).ConfigureAwait(false))
        {
            // A caller that does not read would not read the status either, and the call would never end.
            _features.Get<IHttpResetFeature>()?.Reset(TooSlowCode);
        }
        await flushed.ConfigureAwait(false);
        WriteStatus();
    }

    /// <exception cref="RpcException">DEADLINE_EXCEEDED: the deadline passed.</exception>
    public void ThrowIfPastDeadline()
    {
        if (IsPastDeadline)
            throw PastDeadline();
    }

    /// <summary>Whether a token is this call's own. If so, its cancellation ends reads by itself.</summary>
    public bool IsOwn(CancellationToken token) => _deadline is { IsArmed: true } ? _deadline.IsOwn(token) : token == RequestAborted;

    /// <summary>The error after the caller's connection or its stream broke.</summary>
    public static RpcException Gone(Exception? cause) => new(new Status(StatusCode.Cancelled, "The caller went away.", cause));

    /// <summary>Ends the call, because another one needs the room that its slow caller takes. Called while that one looks for room.</summary>
    public void EndSlow() => _features.Get<IHttpResetFeature>()?.Reset(TooSlowCode);

    protected override Task WriteResponseHeadersAsyncCore(Metadata responseHeaders)
    {
        if (_response.HasStarted || HasContent)
            throw new InvalidOperationException("The response headers have already been sent.");
        AddTo(_response.Headers, responseHeaders);
        return Responses.IsOpen ? Responses.SendHeadersAsync() : _only.SendHeadersAsync(_responseBody);
    }

    private static async ValueTask<bool> EndsSoonAsync(Task flushed)
    {
        await flushed.WaitAsync(StatusPatience).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        return flushed.IsCompleted;
    }

    private static RpcException PastDeadline() => new(new Status(StatusCode.DeadlineExceeded, "The deadline passed."));

    private static void AddTo(IHeaderDictionary headers, Metadata metadata)
    {
        foreach (var entry in metadata)
            headers.Append(entry.Key, HeaderValue.Of(entry));
    }

    private void WriteStatus()
    {
        if (_only.LeftPartialFrame || Responses.LeftPartialFrame)
        {
            _features.Get<IHttpResetFeature>()?.Reset(errorCode: 2);
            return;
        }
        var headers = HasContent
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
}
