// Refuses calls that are meant for another cluster, the same at node and router. One header is looked up per unary call or stream, on the request's thread.
#if GRPC_IN_TREE
using Grpc.AspNetCore.Server.Calls;
#endif
using Grpc.Core;
using Grpc.Core.Interceptors;

namespace KvCluster.ServiceDefaults;

/// <summary>Compares the cluster that a call names in its metadata, if any, with this one.</summary>
/// <param name="clusterId">This cluster's id; empty while it is not known.</param>
/// <param name="known">Waits until it is known, or the call's deadline has passed; null if it is known from the beginning.</param>
internal sealed class ForeignCalls(Func<string> clusterId, Func<ServerCallContext, Task>? known = null) : Interceptor
{
    public override Task<TResponse> UnaryServerHandler<TRequest, TResponse>(TRequest request, ServerCallContext context, UnaryServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other ? After(CheckAsync(other, context), () => continuation(request, context)) : continuation(request, context);

    public override Task<TResponse> ClientStreamingServerHandler<TRequest, TResponse>(IAsyncStreamReader<TRequest> requestStream, ServerCallContext context, ClientStreamingServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other ? After(CheckAsync(other, context), () => continuation(requestStream, context)) : continuation(requestStream, context);

    public override Task ServerStreamingServerHandler<TRequest, TResponse>(TRequest request, IServerStreamWriter<TResponse> responseStream, ServerCallContext context, ServerStreamingServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other ? After(CheckAsync(other, context), () => continuation(request, responseStream, context)) : continuation(request, responseStream, context);

    public override Task DuplexStreamingServerHandler<TRequest, TResponse>(IAsyncStreamReader<TRequest> requestStream, IServerStreamWriter<TResponse> responseStream, ServerCallContext context, DuplexStreamingServerMethod<TRequest, TResponse> continuation) =>
        OtherNamedBy(context) is { } other ? After(CheckAsync(other, context), () => continuation(requestStream, responseStream, context)) : continuation(requestStream, responseStream, context);

    /// <summary>Checks an id that a request names itself.</summary>
    /// <exception cref="RpcException">It is that of another cluster.</exception>
    public static void Check(string expected, string clusterId)
    {
        if (expected.Length > 0 && expected != clusterId)
            throw ClusterHeader.Refusal(expected, clusterId);
    }

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

    // The id that a call names, unless it is this cluster's.
    private string? OtherNamedBy(ServerCallContext context) => NamedBy(context) is { } expected && expected != clusterId() ? expected : null;

    private static string? NamedBy(ServerCallContext context)
    {
#if GRPC_IN_TREE
        // The metadata of a call become objects when they are read, so only this header is.
        if (context is ServerCall call)
            return call.HeaderOf(ClusterHeader.Name);
#endif
        return context.RequestHeaders.GetValue(ClusterHeader.Name);
    }

    private async ValueTask CheckAsync(string expected, ServerCallContext context)
    {
        if (clusterId().Length == 0 && known is not null)
            await known(context).ConfigureAwait(false);
        // Without an id the call ends by its deadline, because nothing can be served either.
        if (clusterId() is { Length: > 0 } own)
            Check(expected, own);
    }
}
