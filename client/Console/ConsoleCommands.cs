using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Sets a key.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Value">At most 8 MiB.</param>
/// <param name="Etag">The etag of the value that was seen and is replaced; null if there was none.</param>
internal sealed record PutCommand([property: JsonRequired] byte[] Key, [property: JsonRequired] byte[] Value, string? Etag);

/// <summary>Removes a key.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Etag">The etag of the value that was seen.</param>
internal sealed record DeleteCommand([property: JsonRequired] byte[] Key, [property: JsonRequired] string Etag);

/// <summary>Makes a node transfer its leaderships to others.</summary>
/// <param name="Node">The node's id.</param>
/// <param name="Draining">false means that it may lead again.</param>
internal sealed record DrainCommand([property: JsonRequired] uint Node, [property: JsonRequired] bool Draining);

/// <summary>Transfers a shard's leadership.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Node">The node that is to lead; absent or 0 means the one that has most of the journal.</param>
internal sealed record TransferCommand([property: JsonRequired] uint Shard, uint? Node);

/// <summary>A request of the page is invalid; the message says why.</summary>
internal sealed class BadRequestException(string message) : Exception(message);
