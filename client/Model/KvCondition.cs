namespace KvCluster.Client;

/// <summary>A test on one key, evaluated just before the operations that it guards.</summary>
public sealed class KvCondition
{
    internal V1.Condition Message { get; }

    private KvCondition(V1.Condition message) => Message = message;

    /// <summary>The key exists and its value was set by the change with this etag.</summary>
    /// <param name="etag">As returned by an earlier answer.</param>
    /// <param name="key">A key other than that of the operation. If omitted, the operation's key is used (not possible in a <see cref="KvWrite"/>).</param>
    public static KvCondition EtagEquals(Etag etag, KvKey key = default) =>
        new(new V1.Condition { Key = key.ToByteString(), EtagEquals = etag.ToMessage() });

    /// <summary>The key exists.</summary>
    public static KvCondition Exists(KvKey key = default) => new(new V1.Condition { Key = key.ToByteString(), Exists = true });

    /// <summary>The key does not exist.</summary>
    public static KvCondition Absent(KvKey key = default) => new(new V1.Condition { Key = key.ToByteString(), Exists = false });

    /// <summary>The key exists with exactly this value.</summary>
    public static KvCondition ValueEquals(KvValue value, KvKey key = default) =>
        new(new V1.Condition { Key = key.ToByteString(), ValueEquals = value.ToByteString() });

    /// <summary>The key exists, and its etag is less than, greater than, equal or not equal to another one.</summary>
    public static KvCondition Etag(KvRelation relation, Etag etag, KvKey key = default) => new(new V1.Condition
    {
        Key = key.ToByteString(),
        Etag = new V1.EtagComparison { Relation = (V1.Relation)relation, Etag = etag.ToMessage() },
    });

    /// <summary>The key exists, and its value compares with another one, byte by byte.</summary>
    public static KvCondition Value(KvRelation relation, KvValue value, KvKey key = default) =>
        new(new V1.Condition { Key = key.ToByteString(), Value = new V1.ValueComparison { Relation = (V1.Relation)relation, Value = value.ToByteString() } });

    /// <summary>
    /// A range of the shard has this number of keys, and this greatest etag. If both are what was read before, nothing in the range was changed since.
    /// </summary>
    /// <param name="start">First key, inclusive.</param>
    /// <param name="end">End, exclusive.</param>
    /// <param name="keys">The number of keys; null: any.</param>
    /// <param name="etagGreatest">The greatest etag, all zero for an empty range; null: any. The range may have at most 10,000 keys then.</param>
    public static KvCondition Range(KvKey start, KvKey end, ulong? keys, Etag? etagGreatest = null)
    {
        var range = new V1.RangeCondition { End = end.ToByteString() };
        if (keys is { } count)
            range.Keys = count;
        if (etagGreatest is { } etag)
            range.EtagGreatest = etag.ToMessage();
        return new(new V1.Condition { Key = start.ToByteString(), Range = range });
    }

    /// <summary>A set has a member.</summary>
    public static KvCondition SetHas(KvKey set, KvKey member) =>
        new(new V1.Condition { Key = set.ToByteString(), SetHas = member.ToByteString() });

    /// <summary>A set lacks a member.</summary>
    public static KvCondition SetLacks(KvKey set, KvKey member) =>
        new(new V1.Condition { Key = set.ToByteString(), SetLacks = member.ToByteString() });
}

/// <summary>How what is stored relates to what a condition names.</summary>
public enum KvRelation
{
    /// <summary>Equal.</summary>
    Equal = V1.Relation.Equal,

    /// <summary>Not equal.</summary>
    NotEqual = V1.Relation.NotEqual,

    /// <summary>What is stored is less.</summary>
    Less = V1.Relation.Less,

    /// <summary>What is stored is greater.</summary>
    Greater = V1.Relation.Greater,
}
