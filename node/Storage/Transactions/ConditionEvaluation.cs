using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>Evaluates the conditions of a request on the newest state, for <see cref="MergedTransaction"/>. Writer executor.</summary>
internal static class ConditionEvaluation
{
    /// <summary>All conditions hold.</summary>
    public const int AllHold = -1;

    /// <summary>The conditions have ranges with more keys than are read, so it is not known whether they hold.</summary>
    public const int TooManyKeys = -2;

    /// <summary>The index of the first condition that does not hold; otherwise <see cref="AllHold"/> or <see cref="TooManyKeys"/>.</summary>
    public static int FindFailed(WriteBatch batch, ReadOnlySpan<byte> conditions)
    {
        var keysLeft = KvLimits.ConditionKeysMax;
        var reader = new ConditionReader(conditions);
        for (var index = 0; reader.MoveNext(); index++)
        {
            if (reader.Kind != ConditionKind.Range)
            {
                if (!Holds(batch, reader))
                    return index;
            }
            else if (RangeHolds(batch, reader, ref keysLeft) is var holds && holds != true)
            {
                return holds is null ? TooManyKeys : index;
            }
        }
        return AllHold;
    }

    private static bool Holds(WriteBatch batch, in ConditionReader condition)
    {
        if (condition.Kind is ConditionKind.SetHas or ConditionKind.SetLacks)
            return (batch.TryGetSet(condition.Key, out var set) && set.Contains(condition.Value)) == (condition.Kind == ConditionKind.SetHas);
        if (condition.Kind is ConditionKind.ValueEquals or ConditionKind.ValueRelates)
            return batch.TryGet(TreeId.Kv, condition.Key, out var whole) && ValueHolds(condition, KvValue.Read(whole, out _));
        if (!batch.TryGetBeginning(TreeId.Kv, condition.Key, KvValue.HeaderBytesMax, out var stored))
            return condition.Kind == ConditionKind.Absent || (condition.Kind == ConditionKind.EtagEquals && condition.Etag == Etag.None);
        _ = KvValue.Read(stored, out var etag);
        return condition.Kind switch
        {
            ConditionKind.EtagEquals => condition.Etag == etag,
            ConditionKind.Exists => true,
            ConditionKind.EtagRelates => Relates(etag.CompareTo(condition.Etag), condition.Relation),
            _ => false,
        };
    }

    private static bool ValueHolds(in ConditionReader condition, ReadOnlySpan<byte> value) => condition.Kind == ConditionKind.ValueEquals
        ? condition.Value.SequenceEqual(value)
        : Relates(value.SequenceCompareTo(condition.Value), condition.Relation);

    private static bool Relates(int order, ConditionRelation relation) => relation switch
    {
        ConditionRelation.Equal => order == 0,
        ConditionRelation.NotEqual => order != 0,
        ConditionRelation.Less => order < 0,
        ConditionRelation.Greater => order > 0,
        _ => false,
    };

    /// <summary>Null if more keys would have to be read than are left. The number of keys alone is known without reading them.</summary>
    private static bool? RangeHolds(WriteBatch batch, in ConditionReader condition, ref int keysLeft)
    {
        if (condition.Keys is { } keys && batch.CountRange(TreeId.Kv, condition.Key, condition.KeyEnd) != keys)
            return false;
        if (condition.Greatest is not { } most)
            return true;
        var greatest = Etag.None;
        using var cursor = batch.Cursor(TreeId.Kv, condition.Key, condition.KeyEnd);
        while (cursor.MoveNext())
        {
            if (keysLeft-- == 0)
                return null;
            _ = KvValue.Read(cursor.Beginning(KvValue.HeaderBytesMax), out var etag);
            greatest = Etag.Max(greatest, etag);
            // A further key cannot make the greatest etag less.
            if (greatest > most)
                return false;
        }
        return greatest == most;
    }
}
