namespace KvCluster.Node.Coordination;

/// <summary>The coordinator gave no answer. Nothing was learnt; reads may be repeated.</summary>
internal class CoordinatorUnavailableException(string reason, Exception? inner = null) : Exception(reason, inner);

/// <summary>
/// The coordinator refuses this process: its user, its password, or what that user may do. Nothing was learnt, as when it gives no answer, which this is
/// for a node that runs; one that starts ends with it, as its operator has to look.
/// </summary>
internal sealed class CoordinatorDeniedException(string reason, Exception inner) : CoordinatorUnavailableException(reason, inner);

/// <summary>
/// The coordinator is not the one it was: another cluster id, or a revision that went backwards. Its answers must not steer anything;
/// what leads goes on, and an operator has to look.
/// </summary>
internal sealed class CoordinatorAlarmException(string reason) : Exception(reason);

/// <summary>A watch asked for changes that are no longer kept: list, and watch from there.</summary>
internal sealed class CoordinatorCompactedException(long keptFrom) : Exception($"Changes are kept from revision {keptFrom} on.")
{
    /// <summary>The oldest revision that a watch can start from.</summary>
    public long KeptFrom => keptFrom;
}

/// <summary>A request that the embedded coordinator refuses; it changed nothing.</summary>
internal sealed class CoordinatorRequestException(string reason, bool isNotFound = false) : Exception(reason)
{
    /// <summary>What it names is not there.</summary>
    public bool IsNotFound { get; } = isNotFound;
}

/// <summary>A value in the coordinator is not what this program keeps there: somebody else's, or damaged by hand.</summary>
/// <param name="type">What was looked for.</param>
/// <param name="text">What is there.</param>
/// <param name="inner">What is wrong with it.</param>
internal sealed class CoordinatorRecordException(string type, string text, Exception inner)
    : IOException($"The coordinator holds a {type} that cannot be read ({inner.Message}): {Shown(text)}", inner)
{
    private const int ShownMax = 80;

    private static string Shown(string text) => string.Concat(text.Take(ShownMax).Select(letter => char.IsControl(letter) ? ' ' : letter)) + (text.Length > ShownMax ? "..." : "");
}

/// <summary>A cluster of this name was begun with other shards. Nothing of it was changed.</summary>
internal sealed class ClusterConflictException(string reason) : Exception(reason);
