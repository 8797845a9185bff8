using KvCluster.Storage.Transactions;

namespace KvCluster.Simulation.Cluster;

/// <summary>A write as its caller knows it, over all its attempts.</summary>
/// <param name="Id">The beginning of its value, and the name of a key of its own, which it puts last.</param>
/// <param name="Keys">The keys that are put together, or deleted.</param>
/// <param name="Deletes">Whether it deletes them.</param>
/// <param name="ValueBytes">The length of the value put under <paramref name="Keys"/>.</param>
/// <param name="Condition">What must hold just before, or null.</param>
/// <param name="Floor">The greatest etag answered to anybody before the first attempt.</param>
/// <param name="Session">The session that identifies it. Without one it is tried only once.</param>
/// <param name="Sequence">Its number in the session.</param>
/// <param name="Range">Not null if it deletes <paramref name="Keys"/> in one operation, as the keys of this range.</param>
internal sealed record ClusterWrite(
    long Id, int[] Keys, bool Deletes, int ValueBytes, ClusterCondition? Condition, Etag Floor, UInt128 Session, ulong Sequence, ClusterKeys? Range)
{
    public bool IsIdentified => Sequence != 0;

    /// <summary>The value that it puts.</summary>
    public byte[] Value => ClusterData.Value(Id, ValueBytes);

    /// <summary>The etag of its first operation, if its last one has this etag.</summary>
    public Etag FirstOf(Etag last) => new(last.Epoch, last.Change - (ulong)(Range is null ? Keys.Length : 1));

    /// <summary>The etag with which it changes one of its keys, if its first operation has this etag.</summary>
    public Etag At(Etag first, int index) => new(first.Epoch, first.Change + (ulong)(Range is null ? index : 0));
}

/// <summary>A range of the keys that all callers share.</summary>
/// <param name="From">The name of its first key.</param>
/// <param name="To">The name of the first key behind it.</param>
internal sealed record ClusterKeys(string From, string To)
{
    /// <summary>Those of the keys from 0 up to a number that are in the range.</summary>
    public int[] Of(int keys) =>
        [.. Enumerable.Range(0, keys)
            .Where(key => string.CompareOrdinal(ClusterData.NameOf(key), From) >= 0 && string.CompareOrdinal(ClusterData.NameOf(key), To) < 0)];
}

/// <summary>A condition of a write.</summary>
/// <param name="Key">The key that it is about.</param>
/// <param name="Kind">What must hold.</param>
/// <param name="Etag">For <see cref="ConditionKind.EtagEquals"/>; none means that the key is absent.</param>
/// <param name="Value">For <see cref="ConditionKind.ValueEquals"/>.</param>
internal sealed record ClusterCondition(int Key, ConditionKind Kind, Etag Etag, byte[] Value)
{
    /// <summary>Whether it holds for this version of the key.</summary>
    public bool Holds(in CommittedLog.Version version) => Kind switch
    {
        ConditionKind.EtagEquals => version.Exists ? version.Etag == Etag : Etag == Etag.None,
        ConditionKind.Exists => version.Exists,
        ConditionKind.Absent => !version.Exists,
        _ => version.Exists && version.Value.AsSpan().SequenceEqual(Value),
    };

    public override string ToString() => $"that key {Key} " + Kind switch
    {
        ConditionKind.EtagEquals => $"has the etag {Etag}",
        ConditionKind.Exists => "is there",
        ConditionKind.Absent => "is absent",
        _ => $"has a value of {Value.Length} bytes",
    };
}
