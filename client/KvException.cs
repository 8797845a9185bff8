namespace KvCluster.Client;

/// <summary>A call that failed. The message is one line for people; <see cref="Reason"/> is for programs.</summary>
public class KvException : Exception
{
    /// <summary>Creates it.</summary>
    public KvException(string reason, string message, ChangeOutcome outcome = ChangeOutcome.NotApplied, Exception? cause = null)
        : base(message, cause)
    {
        Reason = reason;
        Outcome = outcome;
    }

    /// <summary>Stable, in capitals: CONDITION_FAILED, NO_LEADER, KEY_TOO_LONG and so on; kv.proto lists them.</summary>
    public string Reason { get; }

    /// <summary>What became of the change.</summary>
    public ChangeOutcome Outcome { get; }
}
