namespace KvCluster.Node.Coordination;

/// <summary>
/// The coordinator refuses this process: its user, its password, or what that user may do. Nothing was learnt, as when it gives no answer, which this is
/// for a node that runs; one that starts ends with it, as its operator has to look.
/// </summary>
internal sealed class CoordinatorDeniedException(string reason, Exception inner) : CoordinatorUnavailableException(reason, inner);
