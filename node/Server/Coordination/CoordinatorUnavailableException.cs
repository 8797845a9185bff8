namespace KvCluster.Node.Coordination;

/// <summary>The coordinator gave no answer. Nothing was learnt; reads may be repeated.</summary>
internal class CoordinatorUnavailableException(string reason, Exception? inner = null) : Exception(reason, inner);
