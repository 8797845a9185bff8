using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
using Grpc.Core.Interceptors;

namespace KvCluster.ServiceDefaults;

/// <summary>Makes the in-tree gRPC server check each call before its handler is called. With packages the middleware of <c>Calls</c> does.</summary>
internal sealed class ForeignCallsInterceptor(ForeignCalls check) : Interceptor
{
    public override Task<TResponse> UnaryServerHandler<TRequest, TResponse>(
        TRequest request, ServerCallContext context, UnaryServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other ? After(CheckAsync(other, context), () => continuation(request, context)) : continuation(request, context);

    public override Task<TResponse> ClientStreamingServerHandler<TRequest, TResponse>(
        IAsyncStreamReader<TRequest> requestStream, ServerCallContext context, ClientStreamingServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other
            ? After(CheckAsync(other, context), () => continuation(requestStream, context))
            : continuation(requestStream, context);

    public override Task ServerStreamingServerHandler<TRequest, TResponse>(
        TRequest request,
        IServerStreamWriter<TResponse> responseStream,
        ServerCallContext context,
        ServerStreamingServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other
            ? After(CheckAsync(other, context), () => continuation(request, responseStream, context))
            : continuation(request, responseStream, context);

    public override Task DuplexStreamingServerHandler<TRequest, TResponse>(
        IAsyncStreamReader<TRequest> requestStream,
        IServerStreamWriter<TResponse> responseStream,
        ServerCallContext context,
        DuplexStreamingServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other
            ? After(CheckAsync(other, context), () => continuation(requestStream, responseStream, context))
            : continuation(requestStream, responseStream, context);

    private static async Task<TResponse> After<TResponse>(ValueTask check, Func<Task<TResponse>> call)
    {
        await check.ConfigureAwait(false);
        return await call().ConfigureAwait(false);
    }

    private static async Task After(ValueTask check, Func<Task> call)
    {
        await check.ConfigureAwait(false);
        await call().ConfigureAwait(false);
    }

    // The metadata of a call become objects when they are read, so only this header is.
    private string? OtherNamedBy(ServerCallContext context) =>
        check.OtherOf(context is ServerCall call ? call.HeaderOf(ClusterHeader.Name) : context.RequestHeaders.GetValue(ClusterHeader.Name));

    private ValueTask CheckAsync(string expected, ServerCallContext context) => check.CheckAsync(expected, context.Deadline, context.CancellationToken);
}
