using KvCluster.Node.Hosting;
using KvCluster.Storage.Transactions;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>Reads a request's conditions into the write that they guard.</summary>
/// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
internal static class ConditionReading
{
    /// <summary>Adds the conditions of a request. Conditions without a key use <paramref name="keyOfOperation"/>. Null if all are added.</summary>
    public static ApiError? TryAddAll(WriteRequest write, ReadOnlySpan<byte> request, int conditionsField, ReadOnlySpan<byte> keyOfOperation, HostedShard shard, ShardLookup lookup)
    {
        var reader = new WireReader(request);
        var conditionCount = 0;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != conditionsField)
            {
                reader.Skip();
                continue;
            }
            if (++conditionCount > KvLimits.KeysMax)
                return ApiErrors.TooManyOperations;
            if (TryAdd(write, reader.ReadBytes(), keyOfOperation, shard, lookup) is { } bad)
                return bad;
        }
        return null;
    }

    private static ApiError? TryAdd(WriteRequest write, ReadOnlySpan<byte> condition, ReadOnlySpan<byte> keyOfOperation, HostedShard shard, ShardLookup lookup)
    {
        var key = keyOfOperation;
        ConditionKind? kind = null;
        Etag etag = default;
        ReadOnlySpan<byte> value = default;
        var reader = new WireReader(condition);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case Condition.KeyFieldNumber:
                    key = reader.ReadBytes();
                    break;
                case Condition.EtagEqualsFieldNumber:
                    kind = ConditionKind.EtagEquals;
                    etag = reader.ReadEtag();
                    break;
                case Condition.ExistsFieldNumber:
                    kind = reader.ReadBool() ? ConditionKind.Exists : ConditionKind.Absent;
                    break;
                case Condition.ValueEqualsFieldNumber:
                    kind = ConditionKind.ValueEquals;
                    value = reader.ReadBytes();
                    break;
                default:
                    reader.Skip();
                    break;
            }
        }
        if (kind is null)
            return ApiErrors.BadRequest("A condition has no test.");
        if (RequestRules.CheckEntry(key, value) is { } bad)
            return bad;
        if (!shard.Owns(key))
            return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(key));
        if (RequestRules.CheckRoom(write, key, value) is { } full)
            return full;
        write.AddCondition(key, kind.Value, etag, value);
        return null;
    }
}
