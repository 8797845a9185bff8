using KvCluster.Storage.Transactions;

namespace KvCluster.Simulation.Cluster;

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
