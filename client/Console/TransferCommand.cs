using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Transfers a shard's leadership.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Node">The node that is to lead; 0 means the one that has most of the journal.</param>
internal sealed record TransferCommand([property: JsonRequired] uint Shard, [property: JsonRequired] uint Node);
