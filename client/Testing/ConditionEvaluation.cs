using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>Evaluates the conditions of a request on a state. Pure.</summary>
internal static class ConditionEvaluation
{
    /// <summary>The index of the first condition that does not hold; null if all hold.</summary>
    /// <exception cref="KvException">The ranges have too many keys.</exception>
    public static int? FindFailed(ShardState state, ShardRequest request)
    {
        var keysLeft = KvLimits.ConditionKeysMax;
        for (var index = 0; index < request.Conditions.Count; index++)
        {
            var condition = request.Conditions[index];
            var holds = condition.TestCase == V1.Condition.TestOneofCase.Range
                ? RangeHolds(state, condition, ref keysLeft)
                : Holds(state, request.KeyOf(condition), condition);
            if (!holds)
                return index;
        }
        return null;
    }

    private static bool Holds(ShardState state, KvKey key, V1.Condition condition)
    {
        if (condition.TestCase is V1.Condition.TestOneofCase.SetHas)
            return HasMember(state, key, condition.SetHas.Memory);
        if (condition.TestCase is V1.Condition.TestOneofCase.SetLacks)
            return !HasMember(state, key, condition.SetLacks.Memory);
        if (state.Find(key) is not { } stored)
            return condition.TestCase switch
            {
                V1.Condition.TestOneofCase.Exists => !condition.Exists,
                V1.Condition.TestOneofCase.EtagEquals => condition.EtagEquals.ToEtag() == Etag.None,
                _ => false,
            };
        return condition.TestCase switch
        {
            V1.Condition.TestOneofCase.EtagEquals => condition.EtagEquals.ToEtag() == stored.Etag,
            V1.Condition.TestOneofCase.Exists => condition.Exists,
            V1.Condition.TestOneofCase.ValueEquals => condition.ValueEquals.Span.SequenceEqual(stored.Value.Span),
            V1.Condition.TestOneofCase.Etag => Relates(stored.Etag.CompareTo(condition.Etag.Etag.ToEtag()), condition.Etag.Relation),
            V1.Condition.TestOneofCase.Value => Relates(stored.Value.Span.SequenceCompareTo(condition.Value.Value.Span), condition.Value.Relation),
            _ => false,
        };
    }

    private static bool HasMember(ShardState state, KvKey set, KvKey member) => state.FindSet(set)?.Members.Contains(member) == true;

    private static bool Relates(int order, V1.Relation relation) => relation switch
    {
        V1.Relation.Equal => order == 0,
        V1.Relation.NotEqual => order != 0,
        V1.Relation.Less => order < 0,
        V1.Relation.Greater => order > 0,
        _ => false,
    };

    private static bool RangeHolds(ShardState state, V1.Condition condition, ref int keysLeft)
    {
        var bounds = new KeyBounds(condition.Key.Memory, condition.Range.End.Memory);
        if (condition.Range.HasKeys && (ulong)state.CountWithin(bounds) != condition.Range.Keys)
            return false;
        if (condition.Range.EtagGreatest is null)
            return true;
        var greatest = Etag.None;
        foreach (var key in state.Within(bounds))
        {
            if (keysLeft-- == 0)
                throw Refusals.RangeTooLarge();
            greatest = Etag.Max(greatest, key.Etag);
        }
        return greatest == condition.Range.EtagGreatest.ToEtag();
    }
}
