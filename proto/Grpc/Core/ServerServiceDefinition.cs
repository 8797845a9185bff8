namespace Grpc.Core;

/// <summary>A service bound to an instance, with its methods in the order added. Created by generated code's <c>BindService</c>.</summary>
internal sealed class ServerServiceDefinition
{
    private readonly List<Action<ServiceBinderBase>> _methods;

    private ServerServiceDefinition(List<Action<ServiceBinderBase>> methods) => _methods = methods;

    public static Builder CreateBuilder() => new();

    /// <summary>Passes every method to a binder.</summary>
    public void BindService(ServiceBinderBase binder)
    {
        foreach (var addMethod in _methods)
            addMethod(binder);
    }

    /// <summary>Collects methods.</summary>
    public sealed class Builder
    {
        private readonly List<Action<ServiceBinderBase>> _methods = [];

        public Builder AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse> handler)
            where TRequest : class
            where TResponse : class => Add(binder => binder.AddMethod(method, handler));

        public Builder AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse> handler)
            where TRequest : class
            where TResponse : class => Add(binder => binder.AddMethod(method, handler));

        public Builder AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse> handler)
            where TRequest : class
            where TResponse : class => Add(binder => binder.AddMethod(method, handler));

        public Builder AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse> handler)
            where TRequest : class
            where TResponse : class => Add(binder => binder.AddMethod(method, handler));

        public ServerServiceDefinition Build() => new([.. _methods]);

        private Builder Add(Action<ServiceBinderBase> addMethod)
        {
            _methods.Add(addMethod);
            return this;
        }
    }
}
