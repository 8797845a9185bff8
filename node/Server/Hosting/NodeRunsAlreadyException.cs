namespace KvCluster.Node.Hosting;

/// <summary>Another process is this node already, with another data directory; this one is a copy or a slip, and nothing in it was opened.</summary>
internal sealed class NodeRunsAlreadyException(uint node, string address, string directory)
    : IOException($"Node {node} runs already and answers at {address}: a node runs once. The folder '{directory}' was not used; is it a copy, or is the id another's?");
