// The failures of calls over gRPC's client package, by the tables of gRPC's HTTP/2 description. The package reports a connection that does not answer its
// pings as INTERNAL, an answer that is not gRPC as CANCELLED and one that cannot be parsed as UNAVAILABLE, says nothing beside DEADLINE_EXCEEDED, and lets
// exceptions of HttpClient and of disposed objects through to those that write.
using Google.Protobuf;
using Grpc.Core;
using Grpc.Core.Interceptors;

namespace KvCluster;

/// <summary>Maps them, once for all callers. Used on any thread.</summary>
internal sealed class MappedFailures : Interceptor
{
    public static readonly MappedFailures Instance = new(TimeSpan.FromSeconds(10));

    // How the package's texts begin.
    private const string NoStatus = "No grpc-status found on response.";
    private const string NotGrpc = "Bad gRPC response.";

    private readonly TimeSpan _patience;

    /// <param name="patience">How long the first request of a stream may still take when the response has begun before it was sent.</param>
    internal MappedFailures(TimeSpan patience) => _patience = patience;

    /// <summary>The status that a status of the package means.</summary>
    public static Status Map(Status status) => status switch
    {
        { StatusCode: StatusCode.Cancelled, Detail: var text } when text.StartsWith(NoStatus, StringComparison.Ordinal) =>
            new Status(StatusCode.Unknown, "The response ended without a status.", status.DebugException),
        { StatusCode: StatusCode.Cancelled, Detail: var text } when text.StartsWith(NotGrpc, StringComparison.Ordinal) =>
            new Status(StatusCode.Unknown, $"The server's answer is not gRPC: {text}", status.DebugException),
        // A connection was not established in time. Nobody has cancelled the call.
        { DebugException: OperationCanceledException late } when IsLate(late) => TransportStatus.FromException(late),
        // The package says no more than that. Whoever lists which node did not answer needs a reason.
        { StatusCode: StatusCode.DeadlineExceeded, Detail.Length: 0 } =>
            new Status(StatusCode.DeadlineExceeded, "No answer came before the deadline.", status.DebugException),
        { StatusCode: StatusCode.Cancelled or StatusCode.DeadlineExceeded } => status,
        // It is an IOException, so for the package the connection is lost.
        { DebugException: InvalidProtocolBufferException malformed } => new Status(StatusCode.Internal, "Failed to deserialize the message.", malformed),
        { DebugException: { } cause } when cause is IOException or HttpRequestException => TransportStatus.FromException(cause),
        _ => status,
    };

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncUnaryCallContinuation<TRequest, TResponse> continuation)
    {
        AsyncUnaryCall<TResponse> call;
        try
        {
            call = continuation(request, context);
        }
        catch (ObjectDisposedException failure)
        {
            var ended = Disposed(failure);
            return new AsyncUnaryCall<TResponse>(Task.FromException<TResponse>(ended), NoHeaders(), () => ended.Status, () => ended.Trailers, static () => { });
        }
        return new AsyncUnaryCall<TResponse>(
            MapAsync(call.ResponseAsync),
            static state => ((AsyncUnaryCall<TResponse>)state).ResponseHeadersAsync,
            static state => Map(((AsyncUnaryCall<TResponse>)state).GetStatus()),
            static state => ((AsyncUnaryCall<TResponse>)state).GetTrailers(),
            static state => ((AsyncUnaryCall<TResponse>)state).Dispose(),
            call);
    }

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncServerStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        AsyncServerStreamingCall<TResponse> call;
        try
        {
            call = continuation(request, context);
        }
        catch (ObjectDisposedException failure)
        {
            var ended = Disposed(failure);
            var none = new NoStream<TRequest, TResponse>(ended);
            return new AsyncServerStreamingCall<TResponse>(none, NoHeaders(), () => ended.Status, () => ended.Trailers, static () => { });
        }
        return new AsyncServerStreamingCall<TResponse>(
            new Responses<TResponse>(call.ResponseStream),
            static state => ((AsyncServerStreamingCall<TResponse>)state).ResponseHeadersAsync,
            static state => Map(((AsyncServerStreamingCall<TResponse>)state).GetStatus()),
            static state => ((AsyncServerStreamingCall<TResponse>)state).GetTrailers(),
            static state => ((AsyncServerStreamingCall<TResponse>)state).Dispose(),
            call);
    }

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
        ClientInterceptorContext<TRequest, TResponse> context, AsyncDuplexStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        AsyncDuplexStreamingCall<TRequest, TResponse> call;
        try
        {
            call = continuation(context);
        }
        catch (ObjectDisposedException failure)
        {
            var ended = Disposed(failure);
            var none = new NoStream<TRequest, TResponse>(ended);
            return new AsyncDuplexStreamingCall<TRequest, TResponse>(none, none, NoHeaders(), () => ended.Status, () => ended.Trailers, static () => { });
        }
        var responses = new Responses<TResponse>(call.ResponseStream);
        return new AsyncDuplexStreamingCall<TRequest, TResponse>(
            new Requests<TRequest>(call.RequestStream, responses.Begin(call), call, _patience),
            responses,
            static state => ((AsyncDuplexStreamingCall<TRequest, TResponse>)state).ResponseHeadersAsync,
            static state => Map(((AsyncDuplexStreamingCall<TRequest, TResponse>)state).GetStatus()),
            static state => ((AsyncDuplexStreamingCall<TRequest, TResponse>)state).GetTrailers(),
            static state => ((AsyncDuplexStreamingCall<TRequest, TResponse>)state).Dispose(),
            call);
    }

    // The package wraps HttpClient's exception in one with the token of the call.
    private static bool IsLate(Exception? cause) => cause is TimeoutException || (cause is OperationCanceledException && IsLate(cause.InnerException));

    private static RpcException Disposed(ObjectDisposedException failure) => new(new Status(StatusCode.Cancelled, "The call was disposed.", failure));

    // Nobody has to wait for the headers, and a failure there would be one that nobody has looked at.
    private static Task<Metadata> NoHeaders() => Task.FromCanceled<Metadata>(new CancellationToken(canceled: true));

    private static async Task<T> MapAsync<T>(Task<T> answer)
    {
        try
        {
            return await answer.ConfigureAwait(false);
        }
        catch (Exception failure) when (Mapped(failure) is { } mapped)
        {
            throw mapped;
        }
    }

    private static async Task MapAsync(Task write)
    {
        try
        {
            await write.ConfigureAwait(false);
        }
        catch (Exception failure) when (Mapped(failure) is { } mapped)
        {
            throw mapped;
        }
    }

    // A failure that its caller does not wait for must not be reported as one that nobody has looked at.
    private static async Task ObserveAsync(Task left) => await left.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);

    // Returns the mapped failure; null if the failure stays as it is.
    private static RpcException? Mapped(Exception failure) => failure switch
    {
        RpcException rpc => Mapped(rpc),
        ObjectDisposedException disposed => Disposed(disposed),
        IOException or HttpRequestException => new RpcException(TransportStatus.FromException(failure)),
        _ => null,
    };

    private static RpcException? Mapped(RpcException failure)
    {
        var status = Map(failure.Status);
        var isSame = status.StatusCode == failure.StatusCode && (failure.Status.Detail.Length > 0 || status.Detail.Length == 0);
        return isSame ? null : new RpcException(status, failure.Trailers);
    }

    private sealed class Responses<T>(IAsyncStreamReader<T> inner) : IAsyncStreamReader<T>
    {
        private IDisposable? _call;
        private Task<bool>? _first;

        public T Current => inner.Current;

        /// <summary>Begins the first read before the caller of the call does. Called at most once, before the call has its caller.</summary>
        /// <param name="call">Disposed when the caller cancels that read.</param>
        public Task Begin(IDisposable call)
        {
            var first = ReadAsync(CancellationToken.None);
            _ = ObserveAsync(first);
            (_call, _first) = (call, first);
            return first;
        }

        public Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (_first is not { } first)
                return ReadAsync(cancellationToken);
            _first = null;
            return first.IsCompleted || !cancellationToken.CanBeCanceled ? first : CancelWithAsync(first, _call!, cancellationToken);
        }

        private static async Task<bool> CancelWithAsync(Task<bool> read, IDisposable call, CancellationToken cancellationToken)
        {
            using (cancellationToken.UnsafeRegister(static state => ((IDisposable)state!).Dispose(), call))
                return await read.ConfigureAwait(false);
        }

        private Task<bool> ReadAsync(CancellationToken cancellationToken)
        {
            try
            {
                var moved = inner.MoveNext(cancellationToken);
                return moved.IsCompletedSuccessfully ? moved : MapAsync(moved);
            }
            catch (ObjectDisposedException failure)
            {
                return Task.FromException<bool>(Disposed(failure));
            }
        }
    }

    /// <summary>
    /// The requests of a call. The package gets the stream to write to from HttpClient when that has sent the headers. If the connection is lost between, and
    /// the response has begun, the package does not notice it: the first write would never end, and with it callers that read only afterwards. A read notices
    /// it and ends the call, so the first one begins with the call.
    /// </summary>
    private sealed class Requests<T>(IClientStreamWriter<T> inner, Task firstResponse, IDisposable call, TimeSpan patience) : IClientStreamWriter<T>
    {
        private bool _hasBegun;

        public WriteOptions? WriteOptions
        {
            get => inner.WriteOptions;
            set => inner.WriteOptions = value;
        }

        public Task WriteAsync(T message) => WriteAsync(message, CancellationToken.None);

        public Task WriteAsync(T message, CancellationToken cancellationToken)
        {
            try
            {
                var write = inner.WriteAsync(message, cancellationToken);
                var isFirst = !_hasBegun;
                // Also if that one was sent at once: a later one may wait for as long as its reader does.
                _hasBegun = true;
                return write.IsCompletedSuccessfully ? write : isFirst ? BeginAsync(write) : MapAsync(write);
            }
            catch (ObjectDisposedException failure)
            {
                return Task.FromException(Disposed(failure));
            }
        }

        public Task CompleteAsync()
        {
            try
            {
                return inner.CompleteAsync();
            }
            catch (ObjectDisposedException)
            {
                // The call has ended, and its request with it.
                return Task.CompletedTask;
            }
        }

        private async Task BeginAsync(Task write)
        {
            await Task.WhenAny(write, firstResponse).ConfigureAwait(false);
            try
            {
                // A response that has ended ends the write, too. One that has begun does not.
                await write.WaitAsync(patience).ConfigureAwait(false);
            }
            catch (TimeoutException)
            {
                call.Dispose();
                _ = ObserveAsync(write);
                throw new RpcException(new Status(StatusCode.Unavailable, "The connection was lost before the first request was sent."));
            }
            catch (Exception failure) when (Mapped(failure) is { } mapped)
            {
                throw mapped;
            }
        }
    }

    /// <summary>Both ends of a call that was not made.</summary>
    private sealed class NoStream<TRequest, TResponse>(RpcException ended) : IClientStreamWriter<TRequest>, IAsyncStreamReader<TResponse>
    {
        public WriteOptions? WriteOptions { get; set; }

        public TResponse Current => throw new InvalidOperationException("The stream has no message.");

        public Task<bool> MoveNext(CancellationToken cancellationToken) => Task.FromException<bool>(ended);

        public Task WriteAsync(TRequest message) => Task.FromException(ended);

        public Task WriteAsync(TRequest message, CancellationToken cancellationToken) => Task.FromException(ended);

        public Task CompleteAsync() => Task.CompletedTask;
    }
}
