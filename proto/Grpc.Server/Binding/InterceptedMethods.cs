using Grpc.Core;
using Grpc.Core.Interceptors;

namespace Grpc.AspNetCore.Server.Binding;

/// <summary>Wraps a handler in a server's interceptors, once, when it is bound. The first in the list is called first.</summary>
internal static class InterceptedMethods
{
    public static UnaryServerMethod<TRequest, TResponse> Unary<TRequest, TResponse>(UnaryServerMethod<TRequest, TResponse> handler, Interceptor[] interceptors)
        where TRequest : class
        where TResponse : class =>
        interceptors.Reverse().Aggregate(handler, (next, interceptor) => (request, context) => interceptor.UnaryServerHandler(request, context, next));

    public static ClientStreamingServerMethod<TRequest, TResponse> ClientStreaming<TRequest, TResponse>(ClientStreamingServerMethod<TRequest, TResponse> handler, Interceptor[] interceptors)
        where TRequest : class
        where TResponse : class =>
        interceptors.Reverse().Aggregate(handler, (next, interceptor) => (requests, context) => interceptor.ClientStreamingServerHandler(requests, context, next));

    public static ServerStreamingServerMethod<TRequest, TResponse> ServerStreaming<TRequest, TResponse>(ServerStreamingServerMethod<TRequest, TResponse> handler, Interceptor[] interceptors)
        where TRequest : class
        where TResponse : class =>
        interceptors.Reverse().Aggregate(handler, (next, interceptor) => (request, responses, context) => interceptor.ServerStreamingServerHandler(request, responses, context, next));

    public static DuplexStreamingServerMethod<TRequest, TResponse> DuplexStreaming<TRequest, TResponse>(DuplexStreamingServerMethod<TRequest, TResponse> handler, Interceptor[] interceptors)
        where TRequest : class
        where TResponse : class =>
        interceptors.Reverse().Aggregate(handler, (next, interceptor) => (requests, responses, context) => interceptor.DuplexStreamingServerHandler(requests, responses, context, next));
}
