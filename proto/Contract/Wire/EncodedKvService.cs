using Grpc.Core;

namespace KvCluster.Wire;

/// <summary>
/// The service <c>kvcluster.v1.Kv</c> on encoded messages, in the form of a generated service: what the generated <c>Kv.KvBase</c> passes as objects stays
/// bytes here.
/// </summary>
[BindServiceMethod(typeof(EncodedKvService), nameof(BindService))]
internal abstract class EncodedKvService
{
    private const string ServiceName = "kvcluster.v1.Kv";

    /// <summary>Registers every method with a binder, as generated code does.</summary>
    /// <param name="binder">Gets each method.</param>
    /// <param name="service">Provides the handlers. It is null if the binder only wants the methods, as that of grpc-dotnet does, which finds the handlers by
    /// name.</param>
    public static void BindService(ServiceBinderBase binder, EncodedKvService? service)
    {
        binder.AddMethod(MethodOf(nameof(Get), MethodType.Unary), service is null ? null! : new UnaryServerMethod<MessageBytes, MessageBytes>(service.Get));
        binder.AddMethod(MethodOf(nameof(GetMany), MethodType.Unary), service is null ? null! : new UnaryServerMethod<MessageBytes, MessageBytes>(service.GetMany));
        binder.AddMethod(MethodOf(nameof(Put), MethodType.Unary), service is null ? null! : new UnaryServerMethod<MessageBytes, MessageBytes>(service.Put));
        binder.AddMethod(MethodOf(nameof(Delete), MethodType.Unary), service is null ? null! : new UnaryServerMethod<MessageBytes, MessageBytes>(service.Delete));
        binder.AddMethod(MethodOf(nameof(Write), MethodType.Unary), service is null ? null! : new UnaryServerMethod<MessageBytes, MessageBytes>(service.Write));
        binder.AddMethod(MethodOf(nameof(OpenSession), MethodType.Unary), service is null ? null! : new UnaryServerMethod<MessageBytes, MessageBytes>(service.OpenSession));
        binder.AddMethod(MethodOf(nameof(Scan), MethodType.ServerStreaming), service is null ? null! : new ServerStreamingServerMethod<MessageBytes, MessageBytes>(service.Scan));
        binder.AddMethod(MethodOf(nameof(Exchange), MethodType.DuplexStreaming), service is null ? null! : new DuplexStreamingServerMethod<MessageBytes, MessageBytes>(service.Exchange));
    }

    public abstract Task<MessageBytes> Get(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> GetMany(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Put(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Delete(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Write(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> OpenSession(MessageBytes request, ServerCallContext context);

    public abstract Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    public abstract Task Exchange(IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    private static Method<MessageBytes, MessageBytes> MethodOf(string name, MethodType type) =>
        new(type, ServiceName, name, MessageBytes.Marshaller, MessageBytes.Marshaller);
}
