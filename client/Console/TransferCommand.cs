using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Hands a shard's leadership over.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Node">Who is to lead; 0: who has most of the journal.</param>
internal sealed record TransferCommand([property: JsonRequired] uint Shard, [property: JsonRequired] uint Node);
