using Grpc.Core;

namespace KvCluster.Wire;

/// <summary>
/// The service <c>kvcluster.v1.Kv</c> on encoded messages, in the shape that generated services have: what the generated <c>Kv.KvBase</c>
/// would give and take as objects stays bytes here.
/// </summary>
[BindServiceMethod(typeof(EncodedKvService), nameof(BindService))]
internal abstract class EncodedKvService
{
    private const string ServiceName = "kvcluster.v1.Kv";

    public static void BindService(ServiceBinderBase binder, EncodedKvService service)
    {
        binder.AddMethod(MethodOf(nameof(Get), MethodType.Unary), service.Get);
        binder.AddMethod(MethodOf(nameof(GetMany), MethodType.Unary), service.GetMany);
        binder.AddMethod(MethodOf(nameof(Put), MethodType.Unary), service.Put);
        binder.AddMethod(MethodOf(nameof(Delete), MethodType.Unary), service.Delete);
        binder.AddMethod(MethodOf(nameof(Write), MethodType.Unary), service.Write);
        binder.AddMethod(MethodOf(nameof(OpenSession), MethodType.Unary), service.OpenSession);
        binder.AddMethod(MethodOf(nameof(Scan), MethodType.ServerStreaming), service.Scan);
        binder.AddMethod(MethodOf(nameof(Exchange), MethodType.DuplexStreaming), service.Exchange);
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
