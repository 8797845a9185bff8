using KvCluster.Storage.Transactions;

namespace KvCluster.Simulation.Cluster;

/// <summary>A write as its caller knows it, over all its attempts.</summary>
/// <param name="Id">Begins the value that it puts, and names a key of its own, which it puts last.</param>
/// <param name="Keys">Put together, or deleted.</param>
/// <param name="Deletes">Whether it deletes them.</param>
/// <param name="ValueBytes">Length of the value put under <paramref name="Keys"/>.</param>
/// <param name="Condition">What must hold just before; null: nothing.</param>
/// <param name="Floor">The greatest etag answered to anybody before the first attempt.</param>
/// <param name="Session">The session it is identified in; none: it is not, and is tried once.</param>
/// <param name="Sequence">Its number in the session.</param>
internal sealed record ClusterWrite(long Id, int[] Keys, bool Deletes, int ValueBytes, ClusterCondition? Condition, Etag Floor, UInt128 Session, ulong Sequence)
{
    public bool IsIdentified => Sequence != 0;

    /// <summary>What it puts.</summary>
    public byte[] Value => ClusterData.Value(Id, ValueBytes);

    /// <summary>The etag of its first operation, if that of its last is this one.</summary>
    public Etag FirstOf(Etag last) => new(last.Epoch, last.Change - (ulong)Keys.Length);
}

/// <summary>A condition of a write.</summary>
/// <param name="Key">Of which key.</param>
/// <param name="Kind">What must hold of it.</param>
/// <param name="Etag">Of <see cref="ConditionKind.EtagEquals"/>; none: the key is absent.</param>
/// <param name="Value">Of <see cref="ConditionKind.ValueEquals"/>.</param>
internal sealed record ClusterCondition(int Key, ConditionKind Kind, Etag Etag, byte[] Value)
{
    /// <summary>Whether it holds where this is under the key.</summary>
    public bool Holds(in CommittedLog.Version version) => Kind switch
    {
        ConditionKind.EtagEquals => version.Exists ? version.Etag == Etag : Etag == Etag.None,
        ConditionKind.Exists => version.Exists,
        ConditionKind.Absent => !version.Exists,
        _ => version.Exists && version.Value.AsSpan().SequenceEqual(Value),
    };

    public override string ToString() => $"that key {Key} {Kind switch { ConditionKind.EtagEquals => $"has the etag {Etag}", ConditionKind.Exists => "is there", ConditionKind.Absent => "is absent", _ => $"has a value of {Value.Length} bytes" }}";
}
