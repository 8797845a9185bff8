using System.Reflection;
using Grpc.Core;
using KvCluster.Node.Api;
using KvCluster.Router.Api;
using KvCluster.Wire;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// gRPC's server may bind the service on encoded messages without an instance, only to learn its methods, and find each call's handler by name on the
/// service's type. Node and router did not start, because binding took the handlers of a null service.
/// </summary>
public sealed class EncodedKvServiceTests
{
    [Theory]
    [InlineData(typeof(KvService))]
    [InlineData(typeof(KvProxy))]
    public void BindService_WithoutAnInstance_NamesEveryMethodAndTheTypeHasItsHandler(Type service)
    {
        var attribute = typeof(EncodedKvService).GetCustomAttribute<BindServiceMethodAttribute>(inherit: false)!;
        var bind = attribute.BindType.GetMethod(
            attribute.BindMethodName, BindingFlags.Static | BindingFlags.Public | BindingFlags.NonPublic, [typeof(ServiceBinderBase), typeof(EncodedKvService)])!;
        var binder = new MethodNames();
        bind.Invoke(null, BindingFlags.DoNotWrapExceptions, null, [binder, null], null);
        Assert.Equal(KvCluster.V1.Kv.Descriptor.Methods.Select(method => method.Name).Order(), binder.Names.Order());
        Assert.All(binder.Names, name => Assert.NotNull(service.GetMethod(name, BindingFlags.Public | BindingFlags.Instance)));
    }

    private sealed class MethodNames : ServiceBinderBase
    {
        public List<string> Names { get; } = [];

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse>? handler) => Names.Add(method.Name);

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse>? handler) => Names.Add(method.Name);

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse>? handler) => Names.Add(method.Name);

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse>? handler) => Names.Add(method.Name);
    }
}
