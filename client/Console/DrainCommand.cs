using System.Text.Json.Serialization;

namespace KvCluster.AdminConsole;

/// <summary>Makes a node transfer its leaderships to others.</summary>
/// <param name="Node">The node's id.</param>
/// <param name="Draining">false means that it may lead again.</param>
internal sealed record DrainCommand([property: JsonRequired] uint Node, [property: JsonRequired] bool Draining);
