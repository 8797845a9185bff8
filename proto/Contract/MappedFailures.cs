// The failures of calls over gRPC's client package, by the tables of gRPC's HTTP/2 description. The package reports a connection that does not answer its
// pings as INTERNAL and an answer that is not gRPC as CANCELLED, and lets exceptions of HttpClient and of disposed objects through to those that write.
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Shared;

namespace KvCluster;

/// <summary>Maps them, once for all callers. Used on any thread.</summary>
internal sealed class MappedFailures : Interceptor
{
    public static readonly MappedFailures Instance = new();

    // How the package's texts begin.
    private const string NoStatus = "No grpc-status found on response.";
    private const string NotGrpc = "Bad gRPC response.";

    private MappedFailures()
    {
    }

    /// <summary>The status that a status of the package means.</summary>
    public static Status Map(Status status) => status switch
    {
        { StatusCode: StatusCode.Cancelled, Detail: var text } when text.StartsWith(NoStatus, StringComparison.Ordinal) =>
            new Status(StatusCode.Unknown, "The response ended without a status.", status.DebugException),
        { StatusCode: StatusCode.Cancelled, Detail: var text } when text.StartsWith(NotGrpc, StringComparison.Ordinal) =>
            new Status(StatusCode.Unknown, $"The server's answer is not gRPC: {text}", status.DebugException),
        // A connection was not established in time. Nobody has cancelled the call.
        { DebugException: OperationCanceledException { InnerException: TimeoutException } late } => StatusMapping.FromException(late),
        { StatusCode: StatusCode.Cancelled or StatusCode.DeadlineExceeded } => status,
        { DebugException: { } cause } when cause is IOException or HttpRequestException => StatusMapping.FromException(cause),
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
        return new AsyncDuplexStreamingCall<TRequest, TResponse>(
            new Requests<TRequest>(call.RequestStream),
            new Responses<TResponse>(call.ResponseStream),
            static state => ((AsyncDuplexStreamingCall<TRequest, TResponse>)state).ResponseHeadersAsync,
            static state => Map(((AsyncDuplexStreamingCall<TRequest, TResponse>)state).GetStatus()),
            static state => ((AsyncDuplexStreamingCall<TRequest, TResponse>)state).GetTrailers(),
            static state => ((AsyncDuplexStreamingCall<TRequest, TResponse>)state).Dispose(),
            call);
    }

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

    // Null: the failure stays as it is.
    private static RpcException? Mapped(Exception failure) => failure switch
    {
        RpcException rpc => Mapped(rpc),
        ObjectDisposedException disposed => Disposed(disposed),
        IOException or HttpRequestException => new RpcException(StatusMapping.FromException(failure)),
        _ => null,
    };

    private static RpcException? Mapped(RpcException failure)
    {
        var status = Map(failure.Status);
        return status.StatusCode == failure.StatusCode ? null : new RpcException(status, failure.Trailers);
    }

    private sealed class Responses<T>(IAsyncStreamReader<T> inner) : IAsyncStreamReader<T>
    {
        public T Current => inner.Current;

        public Task<bool> MoveNext(CancellationToken cancellationToken)
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

    private sealed class Requests<T>(IClientStreamWriter<T> inner) : IClientStreamWriter<T>
    {
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
                return write.IsCompletedSuccessfully ? write : MapAsync(write);
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
