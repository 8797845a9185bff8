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

    /// <summary>One change if the key's mod revision is as expected and the guard holds, otherwise none. If it changes nothing, it reads the guard's key.</summary>
    public static TxnRequest CompareAndSet(string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guard)
    {
        var name = ByteString.CopyFromUtf8(key);
        var request = new TxnRequest
        {
            Compare = { new Compare { Key = name, Target = Compare.Types.CompareTarget.Mod, Result = Compare.Types.CompareResult.Equal, ModRevision = expectedRevision } },
            Success =
            {
                value is null
                    ? new RequestOp { RequestDeleteRange = new DeleteRangeRequest { Key = name } }
                    : new RequestOp { RequestPut = new PutRequest { Key = name, Value = ByteString.CopyFromUtf8(value), Lease = lease } },
            },
        };
        if (guard is null)
            return request;
        var guarded = ByteString.CopyFromUtf8(guard.Key);
        request.Compare.Add(new Compare { Key = guarded, Target = Compare.Types.CompareTarget.Value, Result = Compare.Types.CompareResult.Equal, Value = ByteString.CopyFromUtf8(guard.Value) });
        request.Failure.Add(new RequestOp { RequestRange = new RangeRequest { Key = guarded } });
        return request;
    }

    /// <summary>Whether a transaction changed nothing because its guard does not hold.</summary>
    public static bool IsBroken(CoordinatorGuard? guard, TxnResponse response) =>
        guard is not null && !response.Succeeded && ToRead(response.Responses.Single().ResponseRange).Value != guard.Value;

    /// <summary>The first key after all keys with a prefix. One zero byte if there is no such key.</summary>
    public static ByteString EndOfPrefix(ByteString prefix) => KeyBounds.EndOfPrefix(prefix.Span) is { Length: > 0 } end ? ByteString.CopyFrom(end) : ByteString.CopyFrom(0);

    public static CoordinatorRead ToRead(RangeResponse response)
    {
        var kv = response.Kvs.SingleOrDefault();
        return new CoordinatorRead(kv?.Value.ToStringUtf8(), kv?.ModRevision ?? 0, response.Header?.Revision ?? 0);
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
