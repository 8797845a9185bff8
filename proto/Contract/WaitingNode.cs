namespace KvCluster;

/// <summary>
/// What a node says to callers while it has started and waits for its coordinator's record of the cluster. Meanwhile it serves only what a recovery of the
/// records needs. `kv doctor` knows it by this text, which is all that a router passes on from a node that does not examine itself. Pure; any thread.
/// </summary>
internal static class WaitingNode
{
    private const string Waits = "waits for its coordinator's record of the cluster";

    /// <summary>The message of a refusal.</summary>
    /// <param name="node">The node.</param>
    /// <param name="cluster">The cluster's name.</param>
    /// <param name="call">What was called.</param>
    public static string Text(NodeId node, string cluster, string call) =>
        $"Node {node} {Waits} '{cluster}', of which the coordinator has none, or an older one than the node has seen. Until then it does not serve {call}; "
        + "nothing was applied. If the coordinator's data is lost, keep the node's data directory and rebuild the records: kv admin coordinator recover";

    /// <summary>Whether an error is such a refusal.</summary>
    public static bool IsIn(string error) => error.Contains(Waits, StringComparison.Ordinal);
}
