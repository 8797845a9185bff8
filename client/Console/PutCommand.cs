using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Sets a key.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Value">At most 8 MiB.</param>
/// <param name="Etag">The etag of the value that was seen and is replaced; null if there was none.</param>
internal sealed record PutCommand([property: JsonRequired] byte[] Key, [property: JsonRequired] byte[] Value, string? Etag);
