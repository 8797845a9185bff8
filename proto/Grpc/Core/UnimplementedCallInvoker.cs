namespace Grpc.Core;

/// <summary>The invoker of a client that was made without a channel, to be overridden call by call.</summary>
internal sealed class UnimplementedCallInvoker : CallInvoker
{
    public static readonly UnimplementedCallInvoker Instance = new();

    private UnimplementedCallInvoker()
    {
    }

    public override TResponse BlockingUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        throw NoChannel();

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        throw NoChannel();

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        throw NoChannel();

    public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options) =>
        throw NoChannel();

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options) =>
        throw NoChannel();

    private static InvalidOperationException NoChannel() => new("This client was made without a channel.");
}
