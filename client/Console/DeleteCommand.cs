using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Removes a key.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Etag">The etag of the value that was seen.</param>
internal sealed record DeleteCommand([property: JsonRequired] byte[] Key, [property: JsonRequired] string Etag);
