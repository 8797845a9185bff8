using System.Collections.Frozen;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>Describes a failure to the person and the script that called `kv`. The only place that does.</summary>
internal static class Failures
{
    /// <summary>
    /// What the reasons of the contract mean for a script (kv.proto, admin.proto), and those of the library itself. A reason that is missing here would look
    /// like a bug of the cluster; a test compares.
    /// </summary>
    private static readonly FrozenDictionary<string, int> ExitCodeOf = Table(
        (ExitCodes.NotFound, ["COMPACTED", "LINEAGE_CHANGED"]),
        (ExitCodes.Usage,
        [
            "KEY_EMPTY", "KEY_TOO_LONG", "MEMBER_EMPTY", "MEMBER_TOO_LONG", "VALUE_TOO_LARGE", "WRITE_TOO_LARGE", "TOO_MANY_OPERATIONS", "BAD_REQUEST",
            "SHARDS_DIFFER", "NOT_A_NUMBER", "NUMBER_OVERFLOW", "NO_OWNER", "TOO_MANY_OWNED", "RANGE_TOO_LARGE", "ANSWER_TOO_LARGE",
            "NO_SHARD", "NO_NODE", "NO_OPERATION", "TLS_FILE_UNUSABLE",
        ]),
        (ExitCodes.Unavailable,
        [
            "NOT_LEADER", "WRONG_SHARD", "NO_LEADER", "STOPPING", "BUSY", "DEADLINE_PASSED", "REPLICA_BEHIND", "CANCELLED", "SNAPSHOT_TOO_OLD", "NOT_READ",
            "DISK_FULL", "ENDPOINT_UNUSABLE", "CLIENT_CLOSED", "UNSUPPORTED_BY_PEER", "NOT_SERVED_HERE",
            "FOREIGN_CLUSTER",
            "NOT_REPLACED", "NOT_TRANSFERRED", "NOT_PLACED", "NOT_RAISED", "NOT_RECOVERED", "NOT_QUARANTINED", "NOT_DRAINED", "WRONG_NODE", "NODE_UNREACHABLE",
        ]),
        (ExitCodes.ConditionFailed, ["CONDITION_FAILED"]),
        (ExitCodes.OutcomeUnknown, ["OUTCOME_UNKNOWN", "SESSION_EXPIRED", "SEQUENCE_CLOSED"]),
        // The library never lets callers see the last two, unless it has a bug.
        (ExitCodes.Internal, ["CORRUPT", "INTERNAL", "SEQUENCE_REUSED", "REPLY_LARGE"]));

    /// <summary>The reasons that have an exit code.</summary>
    public static IEnumerable<string> Reasons => ExitCodeOf.Keys;

    /// <summary>The exit code and the line to print, without a stack trace.</summary>
    public static (int ExitCode, string Line) Describe(Exception failure) => failure switch
    {
        CliException e => (e.ExitCode, e.Message),
        KvException e => Describe(e),
        OperationGoesOnException e => (ExitCodes.OutcomeUnknown, e.Message),
        OperationCanceledException => (ExitCodes.OutcomeUnknown, $"interrupted: {Interruption.Consequence}"),
        OutputClosedException e => (ExitCodes.Internal, e.Message),
        _ => (ExitCodes.Internal, $"internal error, which is a bug: {failure.GetType().Name}: {failure.Message}"),
    };

    private static (int ExitCode, string Line) Describe(KvException failure)
    {
        var exitCode = failure.Outcome == ChangeOutcome.Unknown ? ExitCodes.OutcomeUnknown
            : ExitCodeOf.TryGetValue(failure.Reason, out var known) ? known
            : failure switch
            {
                KvUnavailableException => ExitCodes.Unavailable,
                KvInvalidRequestException => ExitCodes.Usage,
                _ => ExitCodes.Internal,
            };
        return (exitCode, exitCode == ExitCodes.Internal ? $"{failure.Reason}: {failure.Message}" : failure.Message);
    }

    private static FrozenDictionary<string, int> Table(params (int ExitCode, string[] Reasons)[] rows) =>
        rows.SelectMany(static row => row.Reasons.Select(reason => KeyValuePair.Create(reason, row.ExitCode))).ToFrozenDictionary(StringComparer.Ordinal);
}
