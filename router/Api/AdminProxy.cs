using Grpc.Core;
using KvCluster.Client.Transport;

namespace KvCluster.Router.Api;

/// <summary>The service Admin of a router: passes each call to the node that can execute it, or to every node. A singleton.</summary>
[BindServiceMethod(typeof(AdminProxy), nameof(BindService))]
internal sealed class AdminProxy(NodeFanOut nodes, RouterOptions options)
{
    /// <summary>For a caller without a deadline, who may watch again.</summary>
    private static readonly TimeSpan WatchTimeMax = TimeSpan.FromDays(1);

    /// <summary>Registers every method of the service with a binder, as generated code does.</summary>
    public static void BindService(ServiceBinderBase binder, AdminProxy proxy) => Admin.V1.Admin.BindService(new HandlerBinder(binder, proxy), null);

    private Task<TResponse> AskAsync<TRequest, TResponse>(Method<TRequest, TResponse> method, TRequest request, ServerCallContext context)
        where TRequest : class
        where TResponse : class
    {
        var deadlineMs = NodeFanOut.IsForAll(request) ? Deadlines.OfAll(context, options.Timeout) : Deadlines.Of(context, options.Timeout);
        return nodes.AsyncUnaryCall(method, null, OperatorInvoker.OptionsOf(deadlineMs, context.CancellationToken), request).ResponseAsync;
    }

    private async Task FollowAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method, TRequest request, IServerStreamWriter<TResponse> responseStream, ServerCallContext context)
        where TRequest : class
        where TResponse : class
    {
        var until = OperatorInvoker.OptionsOf(Deadlines.Of(context, WatchTimeMax), context.CancellationToken);
        using var call = nodes.AsyncServerStreamingCall(method, null, until, request);
        await foreach (var state in call.ResponseStream.ReadAllAsync(context.CancellationToken).ConfigureAwait(false))
            await responseStream.WriteAsync(state).ConfigureAwait(false);
    }

    /// <summary>Gives each method of the generated service a handler that passes its calls on.</summary>
    private sealed class HandlerBinder(ServiceBinderBase binder, AdminProxy proxy) : ServiceBinderBase
    {
        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse>? handler) =>
            binder.AddMethod(method, new UnaryServerMethod<TRequest, TResponse>((request, context) => proxy.AskAsync(method, request, context)));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse>? handler) =>
            binder.AddMethod(
                method,
                new ServerStreamingServerMethod<TRequest, TResponse>((request, responses, context) => proxy.FollowAsync(method, request, responses, context)));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse>? handler) =>
            throw new NotSupportedException();

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse>? handler) =>
            throw new NotSupportedException();
    }
}
