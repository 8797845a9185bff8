using Etcdserverpb;
using Google.Protobuf;
using Mvccpb;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>The requests to etcd, and what its answers say.</summary>
internal static class EtcdRequests
{
    public static RangeRequest Get(string key) => new() { Key = ByteString.CopyFromUtf8(key) };

    public static RangeRequest List(string prefix)
    {
        var key = ByteString.CopyFromUtf8(prefix);
        return new RangeRequest { Key = key, RangeEnd = EndOfPrefix(key) };
    }

    /// <summary>
    /// One change if the key's mod revision is as expected and the guard holds, otherwise none. If it changes nothing, it reads what the guard compares.
    /// </summary>
    public static TxnRequest CompareAndSet(string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guard)
    {
        var name = ByteString.CopyFromUtf8(key);
        var request = new TxnRequest
        {
            Compare =
            {
                new Compare { Key = name, Target = Compare.Types.CompareTarget.Mod, Result = Compare.Types.CompareResult.Equal, ModRevision = expectedRevision }
            },
            Success =
            {
                value is null
                    ? new RequestOp { RequestDeleteRange = new DeleteRangeRequest { Key = name } }
                    : new RequestOp { RequestPut = new PutRequest { Key = name, Value = ByteString.CopyFromUtf8(value), Lease = lease } },
            },
        };
        if (guard is null)
            return request;
        request.Compare.Add(CompareOf(guard));
        request.Failure.Add(new RequestOp { RequestRange = guard.UnchangedSince is null ? Get(guard.Key) : List(guard.Key) });
        return request;
    }

    /// <summary>Whether a transaction changed nothing because its guard does not hold.</summary>
    public static bool IsBroken(CoordinatorGuard? guard, TxnResponse response) =>
        guard is not null && !response.Succeeded && !guard.Holds(EntriesOf(response.Responses.Single().ResponseRange));

    /// <summary>The first key after all keys with a prefix. One zero byte if there is no such key.</summary>
    public static ByteString EndOfPrefix(ByteString prefix) =>
        KeyBounds.EndOfPrefix(prefix.Span) is { Length: > 0 } end ? ByteString.CopyFrom(end) : ByteString.CopyFrom(0);

    public static CoordinatorRead ToRead(RangeResponse response)
    {
        var kv = response.Kvs.SingleOrDefault();
        return new CoordinatorRead(kv?.Value.ToStringUtf8(), kv?.ModRevision ?? 0, response.Header?.Revision ?? 0);
    }

    public static CoordinatorList ToList(RangeResponse response) => new([.. EntriesOf(response)], response.Header.Revision);

    public static IReadOnlyList<CoordinatorChange> ToChanges(IEnumerable<Event> events) =>
    [
        .. events.Select(change => new CoordinatorChange(
            change.Kv.Key.ToStringUtf8(),
            change.Type == Event.Types.EventType.Delete ? null : change.Kv.Value.ToStringUtf8(),
            change.Kv.ModRevision)),
    ];

    // A comparison of a range holds if it holds for each of its keys, so also if there is none.
    private static Compare CompareOf(CoordinatorGuard guard)
    {
        var key = ByteString.CopyFromUtf8(guard.Key);
        return guard.UnchangedSince is { } revision
            ? new Compare
            {
                Key = key,
                RangeEnd = EndOfPrefix(key),
                Target = Compare.Types.CompareTarget.Mod,
                Result = Compare.Types.CompareResult.Less,
                ModRevision = revision + 1,
            }
            : new Compare
            {
                Key = key,
                Target = Compare.Types.CompareTarget.Value,
                Result = Compare.Types.CompareResult.Equal,
                Value = ByteString.CopyFromUtf8(guard.Value),
            };
    }

    private static IEnumerable<CoordinatorChange> EntriesOf(RangeResponse response) =>
        response.Kvs.Select(static kv => new CoordinatorChange(kv.Key.ToStringUtf8(), kv.Value.ToStringUtf8(), kv.ModRevision));
}
