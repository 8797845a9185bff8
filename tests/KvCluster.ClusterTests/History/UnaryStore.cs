using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Serving;
using KvCluster.V1;

namespace KvCluster.ClusterTests.History;

/// <summary>By unary calls to one node after the other: a caller that goes on at the next where one does not lead or does not answer.</summary>
internal sealed class UnaryStore(IReadOnlyList<GrpcChannel> nodes) : IObservedStore
{
    // Longer than a failover, so that calls wait for the end of one; shorter than a test.
    private static readonly TimeSpan CallTime = TimeSpan.FromSeconds(3);

    private int _node;

    public Task<Observation> GetAsync(string key) => ObserveAsync(async (kv, deadline) =>
    {
        var got = await kv.GetAsync(new GetRequest { Key = Bytes(key) }, deadline: deadline);
        return new Observation("ok", got.Found, got.Value.ToStringUtf8(), got.Found ? Text(got.Etag) : "");
    });

    public Task<Observation> PutAsync(string key, string value) => ObserveAsync(async (kv, deadline) =>
        new Observation("ok", Etag: Text((await kv.PutAsync(new PutRequest { Key = Bytes(key), Value = Bytes(value) }, deadline: deadline)).Position.Etag)));

    public Task<Observation> PutIfAsync(string key, string? expected, string value)
    {
        var condition = expected is null ? new Condition { Exists = false } : new Condition { ValueEquals = Bytes(expected) };
        var request = new PutRequest { Key = Bytes(key), Value = Bytes(value), Conditions = { condition } };
        return ObserveAsync(async (kv, deadline) => new Observation("ok", Found: true, Etag: Text((await kv.PutAsync(request, deadline: deadline)).Position.Etag)));
    }

    public Task<Observation> DeleteAsync(string key) => ObserveAsync(async (kv, deadline) =>
    {
        var deleted = await kv.DeleteAsync(new DeleteRequest { Key = Bytes(key) }, deadline: deadline);
        return new Observation("ok", Etag: deleted.Existed ? Text(deleted.Position.Etag) : "");
    });

    private async Task<Observation> ObserveAsync(Func<Kv.KvClient, DateTime, Task<Observation>> operation)
    {
        try
        {
            return await operation(new Kv.KvClient(nodes[_node % nodes.Count]), DateTime.UtcNow + CallTime);
        }
        catch (RpcException failure)
        {
            var info = failure.GetRpcStatus()?.GetDetail<ErrorInfo>();
            if (info?.Reason == "CONDITION_FAILED")
                return Observation.Refused;
            _node++;
            return info is not null && info.Metadata.TryGetValue("applied", out var applied) && applied == "no" ? Observation.NotDone : Observation.Unknown;
        }
    }

    private static string Text(V1.Etag etag) => new KvCluster.Etag(etag.Epoch, etag.Change).ToString();

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);
}
