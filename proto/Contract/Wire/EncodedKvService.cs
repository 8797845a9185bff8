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
    /// <param name="service">Provides the handlers. It is null if the binder only wants the methods, as that of gRPC's server does, which finds the handlers by
    /// name.</param>
    public static void BindService(ServiceBinderBase binder, EncodedKvService? service)
    {
        Unary(nameof(Get), service is null ? null : service.Get);
        Unary(nameof(GetMany), service is null ? null : service.GetMany);
        Unary(nameof(Put), service is null ? null : service.Put);
        Unary(nameof(Delete), service is null ? null : service.Delete);
        Unary(nameof(DeleteRange), service is null ? null : service.DeleteRange);
        Unary(nameof(Increment), service is null ? null : service.Increment);
        Unary(nameof(Touch), service is null ? null : service.Touch);
        Unary(nameof(Write), service is null ? null : service.Write);
        Unary(nameof(Transact), service is null ? null : service.Transact);
        Unary(nameof(OpenSession), service is null ? null : service.OpenSession);
        Unary(nameof(KeepAlive), service is null ? null : service.KeepAlive);
        Unary(nameof(EndSession), service is null ? null : service.EndSession);
        Unary(nameof(List), service is null ? null : service.List);
        Unary(nameof(Count), service is null ? null : service.Count);
        Unary(nameof(SetAdd), service is null ? null : service.SetAdd);
        Unary(nameof(SetRemove), service is null ? null : service.SetRemove);
        Unary(nameof(SetScan), service is null ? null : service.SetScan);
        Unary(nameof(SetCount), service is null ? null : service.SetCount);
        Unary(nameof(SetIntersect), service is null ? null : service.SetIntersect);
        Streaming(nameof(Scan), service is null ? null : service.Scan);
        Streaming(nameof(Watch), service is null ? null : service.Watch);
        Duplex(nameof(BulkLoad), service is null ? null : service.BulkLoad);
        Duplex(nameof(Exchange), service is null ? null : service.Exchange);

        void Unary(string name, UnaryServerMethod<MessageBytes, MessageBytes>? handler) => binder.AddMethod(MethodOf(name, MethodType.Unary), handler!);
        void Streaming(string name, ServerStreamingServerMethod<MessageBytes, MessageBytes>? handler) => binder.AddMethod(MethodOf(name, MethodType.ServerStreaming), handler!);
        void Duplex(string name, DuplexStreamingServerMethod<MessageBytes, MessageBytes>? handler) => binder.AddMethod(MethodOf(name, MethodType.DuplexStreaming), handler!);
    }

    public abstract Task<MessageBytes> Get(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> GetMany(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Put(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Delete(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Write(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> OpenSession(MessageBytes request, ServerCallContext context);

    public abstract Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    public abstract Task Exchange(IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    public abstract Task<MessageBytes> DeleteRange(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Increment(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Touch(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Transact(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> KeepAlive(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> EndSession(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> List(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> Count(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> SetAdd(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> SetRemove(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> SetScan(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> SetCount(MessageBytes request, ServerCallContext context);

    public abstract Task<MessageBytes> SetIntersect(MessageBytes request, ServerCallContext context);

    public abstract Task Watch(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    public abstract Task BulkLoad(IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context);

    private static Method<MessageBytes, MessageBytes> MethodOf(string name, MethodType type) =>
        new(type, ServiceName, name, MessageBytes.Marshaller, MessageBytes.Marshaller);
}
