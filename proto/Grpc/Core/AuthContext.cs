namespace Grpc.Core;

/// <summary>What a caller proved of itself when its connection was made.</summary>
internal sealed class AuthContext(string? peerIdentityPropertyName, Dictionary<string, List<AuthProperty>> properties)
{
    /// <summary>Whether it proved anything.</summary>
    public bool IsPeerAuthenticated => PeerIdentityPropertyName is not null;

    /// <summary>The name of the properties that tell who it is; null: it proved nothing.</summary>
    public string? PeerIdentityPropertyName { get; } = peerIdentityPropertyName;

    /// <summary>Who it is.</summary>
    public IEnumerable<AuthProperty> PeerIdentity => PeerIdentityPropertyName is { } name ? FindPropertiesByName(name) : [];

    public IEnumerable<AuthProperty> Properties => properties.Values.SelectMany(static values => values);

    public IEnumerable<AuthProperty> FindPropertiesByName(string propertyName) => properties.TryGetValue(propertyName, out var values) ? values : [];
}
