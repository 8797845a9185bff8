namespace Grpc.Core;

/// <summary>The invoker of a client that was created without a channel; every call must be overridden.</summary>
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
