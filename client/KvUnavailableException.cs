namespace KvCluster.Client;

/// <summary>The cluster could not be reached, or had no leader, for as long as the call was allowed to take; nothing was applied.</summary>
public sealed class KvUnavailableException(string reason, string message, Exception? cause = null)
    : KvException(reason, message, ChangeOutcome.NotApplied, cause);
