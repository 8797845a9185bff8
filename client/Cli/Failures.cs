using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>Describes a failure to the person and the script that called `kv`. The only place that does.</summary>
internal static class Failures
{
    private const string Interrupted = "interrupted: changes that were sent may have been applied";

    /// <summary>The exit code and the line to print, without a stack trace.</summary>
    public static (int ExitCode, string Line) Describe(Exception failure) => failure switch
    {
        CliException e => (e.ExitCode, e.Message),
        KvConditionFailedException e => (ExitCodes.ConditionFailed, e.Message),
        KvOutcomeUnknownException e => (ExitCodes.OutcomeUnknown, e.Message),
        KvUnavailableException e => (ExitCodes.Unavailable, e.Message),
        KvInvalidRequestException e => (ExitCodes.Usage, e.Message),
        KvCompactedException e => (ExitCodes.NotFound, e.Message),
        KvException { Reason: "NO_SHARD" or "NO_NODE" or "NO_OPERATION" or "SHARDS_DIFFER" or "TLS_FILE_UNUSABLE" or "NOT_A_NUMBER" or "NUMBER_OVERFLOW" or "NO_OWNER" or "RANGE_TOO_LARGE" } e => (ExitCodes.Usage, e.Message),
        KvException { Reason: "SNAPSHOT_TOO_OLD" or "NOT_REPLACED" or "NOT_TRANSFERRED" or "NOT_PLACED" } e => (ExitCodes.Unavailable, e.Message),
        KvException e => (ExitCodes.Internal, $"{e.Reason}: {e.Message}"),
        OperationGoesOnException e => (ExitCodes.OutcomeUnknown, e.Message),
        OperationCanceledException => (ExitCodes.OutcomeUnknown, Interrupted),
        OutputClosedException e => (ExitCodes.Internal, e.Message),
        _ => (ExitCodes.Internal, $"internal error, which is a bug: {failure.GetType().Name}: {failure.Message}"),
    };
}
