using Grpc.Core;

namespace KvCluster.Client.Transport;

/// <summary>
/// Makes the calls for operators, for generated clients: at the nodes (<see cref="NodeFanOut"/>), or through a router, which makes them at the nodes
/// (<see cref="RouterFanOut"/>). Each call has a deadline, and fails with an <see cref="RpcException"/> whose status says what became of a change. Thread-safe.
/// </summary>
internal abstract class OperatorInvoker : CallInvoker
{
    /// <summary>The options of a call that ends at a time of <see cref="Environment.TickCount64"/>.</summary>
    public static CallOptions OptionsOf(long deadlineMs, CancellationToken cancellationToken) =>
        new(deadline: DateTime.UtcNow.AddMilliseconds(Math.Max(0, deadlineMs - Environment.TickCount64)), cancellationToken: cancellationToken);

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        new(AskAsync(method, request, DeadlineOf(options), options.CancellationToken), NoHeaders, NoStatus, NoTrailers, static () => { });

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request)
    {
        var states = FollowAsync(method, request, DeadlineOf(options), options.CancellationToken);
        var reader = new Reader<TResponse>(states.GetAsyncEnumerator(options.CancellationToken));
        return new AsyncServerStreamingCall<TResponse>(reader, NoHeaders, NoStatus, NoTrailers, reader.Dispose);
    }

    public override TResponse BlockingUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        throw new NotSupportedException();

    public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options) => throw new NotSupportedException();

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options) => throw new NotSupportedException();

    /// <summary>Makes a call with one answer.</summary>
    protected abstract Task<TResponse> AskAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken)
        where TRequest : class
        where TResponse : class;

    /// <summary>Follows an operation until it has ended.</summary>
    protected abstract IAsyncEnumerable<TResponse> FollowAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken)
        where TRequest : class
        where TResponse : class;

    private static Task<Metadata> NoHeaders => Task.FromResult(Metadata.Empty);

    private static Status NoStatus() => Status.DefaultSuccess;

    private static Metadata NoTrailers() => Metadata.Empty;

    private static long DeadlineOf(CallOptions options) => options.Deadline is { } deadline
        ? Environment.TickCount64 + Math.Max(0, (long)(deadline - DateTime.UtcNow).TotalMilliseconds)
        : throw new ArgumentException("A call for operators has a deadline.", nameof(options));

    private sealed class Reader<T>(IAsyncEnumerator<T> states) : IAsyncStreamReader<T>
    {
        public T Current => states.Current;

        public Task<bool> MoveNext(CancellationToken cancellationToken) => states.MoveNextAsync().AsTask();

        // No read is under way then, so that it ends at once.
        public void Dispose() => states.DisposeAsync().AsTask().GetAwaiter().GetResult();
    }
}
