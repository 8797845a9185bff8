namespace KvCluster.Security;

/// <summary>
/// The names by which certificates tell who of a cluster shows them: DNS names that nobody resolves. One certificate may carry several, or all nodes' by a wildcard
/// in the first place, "*.NAME.kvcluster".
/// </summary>
internal static class NodeNames
{
    /// <summary>"node-1.NAME.kvcluster".</summary>
    public static string OfNode(uint node, string cluster) => $"node-{node}.{cluster}.kvcluster";

    /// <summary>"router.NAME.kvcluster".</summary>
    public static string OfRouter(string cluster) => $"router.{cluster}.kvcluster";

    /// <summary>Whether one of a certificate's names is, or covers, this one.</summary>
    public static bool Cover(IEnumerable<string> names, string name) => names.Any(one =>
        one.Equals(name, StringComparison.OrdinalIgnoreCase) || (one.StartsWith("*.", StringComparison.Ordinal) && one.AsSpan(1).Equals(name.AsSpan(name.IndexOf('.', StringComparison.Ordinal)), StringComparison.OrdinalIgnoreCase)));
}
