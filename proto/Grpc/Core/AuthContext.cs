using System.Text;

namespace Grpc.Core;

/// <summary>The authenticated properties of a caller, from its connection's handshake.</summary>
internal sealed class AuthContext(string? peerIdentityPropertyName, Dictionary<string, List<AuthProperty>> properties)
{
    /// <summary>Whether the caller is authenticated.</summary>
    public bool IsPeerAuthenticated => PeerIdentityPropertyName is not null;

    /// <summary>The name of the properties that identify the caller; null if it is not authenticated.</summary>
    public string? PeerIdentityPropertyName { get; } = peerIdentityPropertyName;

    /// <summary>The properties that identify the caller.</summary>
    public IEnumerable<AuthProperty> PeerIdentity => PeerIdentityPropertyName is { } name ? FindPropertiesByName(name) : [];

    public IEnumerable<AuthProperty> Properties => properties.Values.SelectMany(static values => values);

    public IEnumerable<AuthProperty> FindPropertiesByName(string propertyName) => properties.TryGetValue(propertyName, out var values) ? values : [];
}

/// <summary>One property of an authenticated caller.</summary>
internal sealed class AuthProperty
{
    private AuthProperty(string name, string value)
    {
        Name = name;
        Value = value;
    }

    public string Name { get; }

    public string Value { get; }

    /// <param name="name">Its name.</param>
    /// <param name="valueBytes">UTF-8.</param>
    public static AuthProperty Create(string name, byte[] valueBytes) => new(name, Encoding.UTF8.GetString(valueBytes));
}
