using System.Globalization;
using KvCluster.Internal.V1;

namespace KvCluster.Node.Coordination;

/// <summary>Which recovery a record is of. Of two with one number, made in two stores, a node has joined at most one.</summary>
/// <param name="Number">How often the records were rebuilt.</param>
/// <param name="Id">Random; 0 before the first recovery.</param>
internal readonly record struct RecoveryNumber(ulong Number, ulong Id)
{
    public static RecoveryNumber Of(ClusterRecord? record) => record is null ? default : new(record.Recovery, record.RecoveryId);

    public static RecoveryNumber Of(ShardRecord record) => new(record.Recovery, record.RecoveryId);

    /// <summary>For people.</summary>
    public override string ToString() => Id == 0 ? $"{Number}" : string.Create(CultureInfo.InvariantCulture, $"{Number} ({Id:x})");
}
