namespace KvCluster.Node.Coordination;

/// <summary>
/// The coordinator is not the one it was: another cluster id, or a revision that went backwards. Its answers must not steer anything;
/// what leads goes on, and an operator has to look.
/// </summary>
internal sealed class CoordinatorAlarmException(string reason) : Exception(reason);
