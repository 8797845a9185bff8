using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Transactions;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api.Changes;

/// <summary>Reads a request's conditions into the write that they guard.</summary>
/// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
internal static class ConditionReading
{
    private static readonly ApiError NoTest = ApiErrors.BadRequest("A condition has no test, or one that is not known.");

    /// <summary>Adds the conditions of a request. Conditions without a key use <paramref name="keyOfOperation"/>. Null if all are added.</summary>
    public static ApiError? TryAddAll(
        WriteRequest write, ReadOnlySpan<byte> request, int conditionsField, ReadOnlySpan<byte> keyOfOperation, HostedShard shard, ShardLookup lookup)
    {
        var found = shard;
        return TryAddAll(write, request, conditionsField, keyOfOperation, default, default, lookup, ref found);
    }

    /// <summary>
    /// The same for a Transact, whose conditions have keys of their own, and whose shard is perhaps not known yet. It is then that of its first key.
    /// </summary>
    public static ApiError? TryAddAll(
        WriteRequest write,
        ReadOnlySpan<byte> request,
        int conditionsField,
        ReadOnlySpan<byte> first,
        in CallTarget target,
        ShardLookup lookup,
        ref HostedShard? shard) =>
        TryAddAll(write, request, conditionsField, default, first, target, lookup, ref shard);

    private static ApiError? TryAddAll(
        WriteRequest write,
        ReadOnlySpan<byte> request,
        int conditionsField,
        ReadOnlySpan<byte> keyOfOperation,
        ReadOnlySpan<byte> first,
        in CallTarget target,
        ShardLookup lookup,
        ref HostedShard? shard)
    {
        var reader = new WireReader(request);
        var (conditionCount, rangeCount) = (0, 0);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != conditionsField)
            {
                reader.Skip();
                continue;
            }
            if (++conditionCount > KvLimits.KeysMax)
                return ApiErrors.TooManyOperations;
            var condition = new ConditionFields(reader.ReadBytes());
            if (condition.Test == Condition.TestOneofCase.Range && ++rangeCount > KvLimits.RangeConditionsMax)
                return ApiErrors.TooManyRanges;
            if (TryAdd(write, condition, keyOfOperation, first, target, lookup, ref shard) is { } bad)
                return bad;
        }
        return null;
    }

    private static ApiError? TryAdd(
        WriteRequest write,
        in ConditionFields condition,
        ReadOnlySpan<byte> keyOfOperation,
        ReadOnlySpan<byte> first,
        in CallTarget target,
        ShardLookup lookup,
        ref HostedShard? shard)
    {
        if (condition.Test is Condition.TestOneofCase.None || (condition.HasRelation && !condition.IsRelationKnown))
            return NoTest;
        if (condition.Test == Condition.TestOneofCase.Range)
            return TryAddRange(write, condition, first, target, lookup, ref shard);
        var key = condition.HasKey ? condition.Key : keyOfOperation;
        if (RequestRules.CheckEntry(key, condition.Value) is { } bad)
            return bad;
        if (condition.IsOfSet && RequestRules.CheckMember(condition.Value) is { } badMember)
            return badMember;
        if (shard is null && (shard = lookup.Find(first, target, isForLeader: true, out var refusal)) is null)
            return refusal;
        if (!shard.Owns(key))
            return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(key));
        if (RequestRules.CheckRoom(write, key, condition.Value) is { } full)
            return full;
        switch (condition.Test)
        {
            case Condition.TestOneofCase.Etag:
                write.AddEtagCondition(key, condition.Relation, condition.Etag);
                break;
            case Condition.TestOneofCase.Value:
                write.AddValueCondition(key, condition.Relation, condition.Value);
                break;
            default:
                write.AddCondition(key, KindOf(condition), condition.Etag, condition.Value);
                break;
        }
        return null;
    }

    private static ConditionKind KindOf(in ConditionFields condition) => condition.Test switch
    {
        Condition.TestOneofCase.EtagEquals => ConditionKind.EtagEquals,
        Condition.TestOneofCase.Exists => condition.Exists ? ConditionKind.Exists : ConditionKind.Absent,
        Condition.TestOneofCase.ValueEquals => ConditionKind.ValueEquals,
        Condition.TestOneofCase.SetHas => ConditionKind.SetHas,
        _ => ConditionKind.SetLacks,
    };

    private static ApiError? TryAddRange(
        WriteRequest write, in ConditionFields condition, ReadOnlySpan<byte> first, in CallTarget target, ShardLookup lookup, ref HostedShard? shard)
    {
        if (condition.Keys is null && condition.Greatest is null)
            return NoTest;
        if (RequestRules.CheckBounds(condition.Key, condition.End) is { } tooLong)
            return tooLong;
        if (shard is null && first.IsEmpty)
            return ApiErrors.BadRequest(
                "The request names no key beside a range that begins with the first key of its shard. Nothing was applied; name a key of the shard.");
        if (shard is null && (shard = lookup.Find(first, target, isForLeader: true, out var refusal)) is null)
            return refusal;
        var from = condition.Key.IsEmpty ? shard.Route.Start.Span : condition.Key;
        if (RequestRules.CheckRange(shard, lookup, ref from, condition.End, out var to) is { } bad)
            return bad;
        if (RequestRules.CheckRoom(write, from, to) is { } full)
            return full;
        write.AddRangeCondition(from, to, condition.Keys, condition.Greatest);
        return null;
    }
}
