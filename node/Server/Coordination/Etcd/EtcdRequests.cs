using Etcdserverpb;
using Google.Protobuf;
using Mvccpb;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>The requests of both coordinators, in the types of etcd's API.</summary>
internal static class EtcdRequests
{
    public static RangeRequest Get(string key) => new() { Key = ByteString.CopyFromUtf8(key) };

    public static RangeRequest List(string prefix)
    {
        var key = ByteString.CopyFromUtf8(prefix);
        return new RangeRequest { Key = key, RangeEnd = EndOfPrefix(key) };
    }

    /// <summary>One change if the key's mod revision is as expected, otherwise none.</summary>
    public static TxnRequest CompareAndSet(string key, long expectedRevision, string? value, long lease)
    {
        var name = ByteString.CopyFromUtf8(key);
        return new TxnRequest
        {
            Compare = { new Compare { Key = name, Target = Compare.Types.CompareTarget.Mod, Result = Compare.Types.CompareResult.Equal, ModRevision = expectedRevision } },
            Success =
            {
                value is null
                    ? new RequestOp { RequestDeleteRange = new DeleteRangeRequest { Key = name } }
                    : new RequestOp { RequestPut = new PutRequest { Key = name, Value = ByteString.CopyFromUtf8(value), Lease = lease } },
            },
        };
    }

    /// <summary>The first key after all keys with a prefix. One zero byte if there is no such key.</summary>
    public static ByteString EndOfPrefix(ByteString prefix) => KeyBounds.EndOfPrefix(prefix.Span) is { Length: > 0 } end ? ByteString.CopyFrom(end) : ByteString.CopyFrom(0);

    public static CoordinatorRead ToRead(RangeResponse response)
    {
        var kv = response.Kvs.SingleOrDefault();
        return new CoordinatorRead(kv?.Value.ToStringUtf8(), kv?.ModRevision ?? 0, response.Header.Revision);
    }

    public static CoordinatorList ToList(RangeResponse response) =>
        new([.. response.Kvs.Select(kv => new CoordinatorChange(kv.Key.ToStringUtf8(), kv.Value.ToStringUtf8(), kv.ModRevision))], response.Header.Revision);

    public static IReadOnlyList<CoordinatorChange> ToChanges(IEnumerable<Event> events) =>
    [
        .. events.Select(change => new CoordinatorChange(
            change.Kv.Key.ToStringUtf8(),
            change.Type == Event.Types.EventType.Delete ? null : change.Kv.Value.ToStringUtf8(),
            change.Kv.ModRevision)),
    ];
}
