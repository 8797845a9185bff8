using Grpc.Core;
using Grpc.Core.Interceptors;
using KvCluster.Client.Routing;

namespace KvCluster.Client.Transport;

/// <summary>
/// Which cluster the calls of a client or router are meant for, from the moment when its first map is known. Calls say so in their metadata, so that an address
/// that another cluster has taken over since then refuses them. Used on any thread.
/// </summary>
internal sealed class ExpectedCluster : Interceptor
{
    private volatile RouteTable? _table;

    /// <summary>The metadata of a call; null before the first map.</summary>
    public Metadata? Header => ClusterHeader.For(_table?.ClusterId ?? "");

    /// <summary>Sets where the cluster's id is read. Before that, calls name no cluster.</summary>
    public void ReadFrom(RouteTable table) => _table = table;

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncUnaryCallContinuation<TRequest, TResponse> continuation) =>
            continuation(request, Named(context));

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncServerStreamingCallContinuation<TRequest, TResponse> continuation) =>
            continuation(request, Named(context));

    public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(
        ClientInterceptorContext<TRequest, TResponse> context, AsyncClientStreamingCallContinuation<TRequest, TResponse> continuation) =>
            continuation(Named(context));

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
        ClientInterceptorContext<TRequest, TResponse> context, AsyncDuplexStreamingCallContinuation<TRequest, TResponse> continuation) =>
            continuation(Named(context));

    private ClientInterceptorContext<TRequest, TResponse> Named<TRequest, TResponse>(ClientInterceptorContext<TRequest, TResponse> context)
        where TRequest : class
        where TResponse : class
    {
        if (Header is not { } header)
            return context;
        foreach (var entry in context.Options.Headers ?? [])
            header.Add(entry);
        return new ClientInterceptorContext<TRequest, TResponse>(context.Method, context.Host, context.Options.WithHeaders(header));
    }
}
