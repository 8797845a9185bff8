namespace Grpc.Core;

/// <summary>Receives the methods of a service from generated code.</summary>
internal abstract class ServiceBinderBase
{
    public abstract void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse> handler)
        where TRequest : class
        where TResponse : class;

    public abstract void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse> handler)
        where TRequest : class
        where TResponse : class;

    public abstract void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse> handler)
        where TRequest : class
        where TResponse : class;

    public abstract void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse> handler)
        where TRequest : class
        where TResponse : class;
}
