using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Has a node give its leaderships away.</summary>
/// <param name="Node">The node's id.</param>
/// <param name="Draining">false: it may lead again.</param>
internal sealed record DrainCommand([property: JsonRequired] uint Node, [property: JsonRequired] bool Draining);
