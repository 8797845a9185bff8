using System.Text;
using Grpc.Core;
using KvCluster.Wire;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// The methods of the service on encoded messages are bound by what an exchange calls them. If one has no handler, or that of another one, node and router do
/// not do what the contract says.
/// </summary>
public sealed class EncodedKvServiceTests
{
    [Fact]
    public async Task BindService_BindsEveryMethodOfTheContract_AndEachCallHasItsOwn()
    {
        var binder = new Binder();
        EncodedKvService.BindService(binder, new Naming());
        var methods = KvCluster.V1.Kv.Descriptor.Methods.Select(static method => (method.Name, TypeOf(method.IsClientStreaming, method.IsServerStreaming)));
        Assert.Equal(methods.Order(), binder.Bound.Order());
        foreach (var (name, handler) in binder.Unary)
            Assert.Equal(name, Encoding.UTF8.GetString((await handler(MessageBytes.Rent(), null!)).Written));
    }

    [Fact]
    public void ServiceName_IsThatOfTheContract() => Assert.Equal(EncodedKvService.ServiceName, V1.Kv.Descriptor.FullName);

    private static MethodType TypeOf(bool isClientStreaming, bool isServerStreaming) => (isClientStreaming, isServerStreaming) switch
    {
        (false, false) => MethodType.Unary,
        (false, true) => MethodType.ServerStreaming,
        (true, false) => MethodType.ClientStreaming,
        (true, true) => MethodType.DuplexStreaming,
    };

    /// <summary>Answers with the name of the method.</summary>
    private sealed class Naming : EncodedKvService
    {
        protected override Task<MessageBytes> CallAsync(V1.Method method, MessageBytes request, ServerCallContext context)
        {
            request.Append(Encoding.UTF8.GetBytes(method.ToString()));
            return Task.FromResult(request);
        }

        protected override Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context) => Task.CompletedTask;

        protected override Task Watch(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context) => Task.CompletedTask;

        protected override Task BulkLoad(
            IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context) => Task.CompletedTask;

        protected override Task Exchange(
            IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context) => Task.CompletedTask;
    }

    private sealed class Binder : ServiceBinderBase
    {
        public List<(string Name, MethodType Type)> Bound { get; } = [];

        public Dictionary<string, UnaryServerMethod<MessageBytes, MessageBytes>> Unary { get; } = [];

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse>? handler)
        {
            Bound.Add((method.Name, method.Type));
            Unary.Add(method.Name, Assert.IsType<UnaryServerMethod<MessageBytes, MessageBytes>>(handler));
        }

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse>? handler) =>
            Bound.Add((method.Name, method.Type));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse>? handler) =>
            Bound.Add((method.Name, method.Type));

        public override void AddMethod<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse>? handler) =>
            Bound.Add((method.Name, method.Type));
    }
}
