using Grpc.Core;
using Grpc.Net.Client.Calls;

namespace Grpc.Net.Client;

/// <summary>Makes the calls of a channel.</summary>
internal sealed class HttpCallInvoker(GrpcChannel channel) : CallInvoker
{
    public override TResponse BlockingUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        AsyncUnaryCall(method, host, options, request).GetAwaiter().GetResult();

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request)
    {
        var call = new UnaryCall<TRequest, TResponse>(channel, method, options);
        return new AsyncUnaryCall<TResponse>(call.RunAsync(request), call);
    }

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request)
    {
        var call = new StreamingCall<TRequest, TResponse>(channel, method, options);
        call.Start(request);
        return new AsyncServerStreamingCall<TResponse>(call, call);
    }

    public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options)
    {
        var call = new StreamingCall<TRequest, TResponse>(channel, method, options);
        call.Start();
        return new AsyncClientStreamingCall<TRequest, TResponse>(call, call.ReadOnlyAsync(), call);
    }

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options)
    {
        var call = new StreamingCall<TRequest, TResponse>(channel, method, options);
        call.Start();
        return new AsyncDuplexStreamingCall<TRequest, TResponse>(call, call, call);
    }
}
