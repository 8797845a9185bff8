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

/// <summary>On the base class of a generated service: names the static method that binds it.</summary>
[AttributeUsage(AttributeTargets.Class)]
internal sealed class BindServiceMethodAttribute(Type bindType, string bindMethodName) : Attribute
{
    public Type BindType { get; } = bindType;

    public string BindMethodName { get; } = bindMethodName;
}

// The delegate types of handlers, as generated code binds them: one for each of the four kinds of calls.
internal delegate Task<TResponse> UnaryServerMethod<TRequest, TResponse>(TRequest request, ServerCallContext context)
    where TRequest : class
    where TResponse : class;

internal delegate Task<TResponse> ClientStreamingServerMethod<TRequest, TResponse>(IAsyncStreamReader<TRequest> requestStream, ServerCallContext context)
    where TRequest : class
    where TResponse : class;

internal delegate Task ServerStreamingServerMethod<TRequest, TResponse>(TRequest request, IServerStreamWriter<TResponse> responseStream, ServerCallContext context)
    where TRequest : class
    where TResponse : class;

internal delegate Task DuplexStreamingServerMethod<TRequest, TResponse>(IAsyncStreamReader<TRequest> requestStream, IServerStreamWriter<TResponse> responseStream, ServerCallContext context)
    where TRequest : class
    where TResponse : class;
