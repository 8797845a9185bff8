namespace KvCluster.Tls;

/// <summary>
/// The names by which certificates tell who of a cluster shows them: DNS names that nobody resolves. One certificate may carry several, or all nodes' by a wildcard
/// in the first place, "*.NAME.kvcluster".
/// </summary>
internal static class NodeNames
{
    /// <summary>Characters between two dots, by DNS.</summary>
    private const int LabelMax = 63;

    /// <summary>"node-1.NAME.kvcluster".</summary>
    public static string OfNode(uint node, string cluster) => $"node-{node}.{cluster}.kvcluster";

    /// <summary>"router.NAME.kvcluster".</summary>
    public static string OfRouter(string cluster) => $"router.{cluster}.kvcluster";

    /// <summary>Whether such names of a cluster's nodes are names that certificates can carry.</summary>
    public static bool MayNameCluster(string cluster) => cluster.Split('.').All(static label =>
        label.Length is > 0 and <= LabelMax && label.All(static c => char.IsAsciiLetterOrDigit(c) || c == '-') && label[0] != '-' && label[^1] != '-');

    /// <summary>Says that a name is not one of those.</summary>
    public static string UnfitCluster(string cluster) => $"'{cluster}' cannot stand in certificates: with TLS, a cluster's name is of letters, digits and '-', at most {LabelMax}, or several such with '.' between.";

    /// <summary>Whether one of a certificate's names is, or covers, this one.</summary>
    public static bool Cover(IEnumerable<string> names, string name) => names.Any(one =>
        one.Equals(name, StringComparison.OrdinalIgnoreCase) || (one.StartsWith("*.", StringComparison.Ordinal) && one.AsSpan(1).Equals(name.AsSpan(name.IndexOf('.', StringComparison.Ordinal)), StringComparison.OrdinalIgnoreCase)));
}
