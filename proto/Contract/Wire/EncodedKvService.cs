using Grpc.Core;

namespace KvCluster.Wire;

/// <summary>
/// The service <c>kvcluster.v1.Kv</c> on encoded messages, in the form of a generated service: what the generated <c>Kv.KvBase</c> passes as objects stays
/// bytes here. Its unary methods are those of an exchange.
/// </summary>
[BindServiceMethod(typeof(EncodedKvService), nameof(BindService))]
internal abstract class EncodedKvService
{
    /// <summary>
    /// The service's full name, also for those who make its calls. To read it from the descriptor would first build those of all messages and, by reflection,
    /// accessors of all their fields, and a program's first call would wait for that.
    /// </summary>
    public const string ServiceName = "kvcluster.v1.Kv";

    /// <summary>Registers every method with a binder, as generated code does.</summary>
    /// <param name="binder">Gets each method.</param>
    /// <param name="service">Provides the handlers.</param>
    public static void BindService(ServiceBinderBase binder, EncodedKvService service)
    {
        foreach (var method in Enum.GetValues<V1.Method>().Where(Methods.IsKnown))
        {
            Task<MessageBytes> Call(MessageBytes request, ServerCallContext context) => service.CallAsync(method, request, context);
            binder.AddMethod(MethodOf(method.ToString(), MethodType.Unary), new UnaryServerMethod<MessageBytes, MessageBytes>(Call));
        }
        binder.AddMethod(MethodOf(nameof(Scan), MethodType.ServerStreaming), new ServerStreamingServerMethod<MessageBytes, MessageBytes>(service.Scan));
        binder.AddMethod(MethodOf(nameof(Watch), MethodType.ServerStreaming), new ServerStreamingServerMethod<MessageBytes, MessageBytes>(service.Watch));
        binder.AddMethod(MethodOf(nameof(BulkLoad), MethodType.DuplexStreaming), new DuplexStreamingServerMethod<MessageBytes, MessageBytes>(service.BulkLoad));
        binder.AddMethod(MethodOf(nameof(Exchange), MethodType.DuplexStreaming), new DuplexStreamingServerMethod<MessageBytes, MessageBytes>(service.Exchange));
    }

    /// <summary>A call with one request and one response.</summary>
    protected abstract Task<MessageBytes> CallAsync(V1.Method method, MessageBytes request, ServerCallContext context);

    protected abstract Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    protected abstract Task Watch(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    protected abstract Task BulkLoad(
        IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    protected abstract Task Exchange(
        IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    private static Method<MessageBytes, MessageBytes> MethodOf(string name, MethodType type) =>
        new(type, ServiceName, name, MessageBytes.Marshaller, MessageBytes.Marshaller);
}
