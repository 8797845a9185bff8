namespace KvCluster.Tls;

/// <summary>
/// The names by which certificates identify members of a cluster: DNS names that nobody resolves. A certificate may have several of them, or all nodes' names
/// through a wildcard in the first label, "*.NAME.kvcluster". They are required by <see cref="TlsConnector"/> of the member connected to, and by a node's
/// <c>PeerCertificate</c> of the node that connects.
/// </summary>
internal static class NodeNames
{
    /// <summary>The maximum length of a DNS label.</summary>
    private const int LabelMax = 63;

    /// <summary>"node-1.NAME.kvcluster".</summary>
    public static string OfNode(uint node, string cluster) => $"node-{node}.{cluster}.kvcluster";

    /// <summary>"*.NAME.kvcluster".</summary>
    public static string OfEveryNode(string cluster) => $"*.{cluster}.kvcluster";

    /// <summary>"router.NAME.kvcluster".</summary>
    public static string OfRouter(string cluster) => $"router.{cluster}.kvcluster";

    /// <summary>Whether a cluster's name can be part of names in certificates.</summary>
    public static bool MayNameCluster(string cluster) => cluster.Split('.').All(static label =>
        label.Length is > 0 and <= LabelMax && label.All(static c => char.IsAsciiLetterOrDigit(c) || c == '-') && label[0] != '-' && label[^1] != '-');

    /// <summary>The message for a name that cannot.</summary>
    public static string UnfitCluster(string cluster) => $"'{cluster}' cannot be used in certificates. With TLS, a cluster's name consists of at most "
        + $"{LabelMax} letters, digits and '-', or of several such parts separated by '.'.";

    /// <summary>Whether one of a certificate's names equals or covers this one.</summary>
    public static bool Cover(IEnumerable<string> names, string name) => names.Any(one =>
        one.Equals(name, StringComparison.OrdinalIgnoreCase) || (one.StartsWith("*.", StringComparison.Ordinal)
            && one.AsSpan(1).Equals(name.AsSpan(name.IndexOf('.', StringComparison.Ordinal)), StringComparison.OrdinalIgnoreCase)));
}
