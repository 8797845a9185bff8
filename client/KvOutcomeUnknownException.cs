namespace KvCluster.Client;

/// <summary>
/// The change was sent, repeated until the time was up, and nobody can say whether it was applied. Read the key, or repeat the change where that
/// does no harm.
/// </summary>
public sealed class KvOutcomeUnknownException(string message, Exception? cause = null)
    : KvException("OUTCOME_UNKNOWN", message, ChangeOutcome.Unknown, cause);
