namespace KvCluster.Node.Coordination;

/// <summary>The coordinator did not answer. Nothing is known; reads may be repeated.</summary>
internal class CoordinatorUnavailableException(string reason, Exception? inner = null) : Exception(reason, inner);

/// <summary>
/// The coordinator refuses this process: its user, its password, or what that user may do. A running node treats this like a missing answer. A starting node
/// exits with it, because an operator has to act.
/// </summary>
internal sealed class CoordinatorDeniedException(string reason, Exception inner) : CoordinatorUnavailableException(reason, inner);

/// <summary>
/// The coordinator is not the same store as before: another cluster id, or a revision that went backwards. Its answers must not cause any change. Existing
/// leaders continue, and an operator has to act.
/// </summary>
internal class CoordinatorAlarmException(string reason) : Exception(reason);

/// <summary>
/// The guard of a change does not hold, so nothing was changed. Either the store was restored, replaced or rebuilt, or its levels were just raised, of which
/// this process has not heard yet.
/// </summary>
internal sealed class CoordinatorGuardException(string reason) : CoordinatorAlarmException(reason);

/// <summary>The coordinator failed during an operator's change, which may or may not have been made.</summary>
internal sealed class ChangeUnknownException(string reason) : Exception(reason);

/// <summary>A watch requested changes that are no longer kept. The caller must list and watch from there.</summary>
internal sealed class CoordinatorCompactedException(long keptFrom) : Exception($"Changes before revision {keptFrom} are no longer kept.")
{
    /// <summary>The oldest revision that a watch can start from.</summary>
    public long KeptFrom => keptFrom;
}

/// <summary>A request that the embedded coordinator refuses. It changed nothing.</summary>
internal sealed class CoordinatorRequestException(string reason, bool isNotFound = false) : Exception(reason)
{
    /// <summary>Whether what it names does not exist.</summary>
    public bool IsNotFound { get; } = isNotFound;
}

/// <summary>A value in the coordinator is not a valid record of this program, because somebody else wrote it or it was damaged.</summary>
/// <param name="type">The expected type.</param>
/// <param name="text">The value found.</param>
/// <param name="inner">What is wrong with it.</param>
internal sealed class CoordinatorRecordException(string type, string text, Exception inner)
    : IOException($"The coordinator holds a {type} that cannot be read ({inner.Message}): {Shown(text)}", inner)
{
    private const int ShownMax = 80;

    private static string Shown(string text) =>
        string.Concat(text.Take(ShownMax).Select(letter => char.IsControl(letter) ? ' ' : letter)) + (text.Length > ShownMax ? "..." : "");
}

/// <summary>
/// A cluster was not created, because creation of one of this name was begun with other shards, or nodes that have data of one wait for a recovery. Nothing of
/// it was changed.
/// </summary>
internal sealed class ClusterConflictException(string reason) : Exception(reason);
