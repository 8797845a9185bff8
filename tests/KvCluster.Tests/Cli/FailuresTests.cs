using KvCluster.Cli;
using KvCluster.Client;
using KvCluster.Tests.House;

namespace KvCluster.Tests.Cli;

/// <summary>The whole table of exit codes, because scripts depend on them.</summary>
public sealed class FailuresTests
{
    public static TheoryData<Exception, int> Table => new()
    {
        { new CliException(ExitCodes.NotFound, "absent"), 1 },
        { new CliException(ExitCodes.Usage, "wrong"), 2 },
        { new KvInvalidRequestException("KEY_EMPTY", "empty"), 2 },
        { new KvUnavailableException("NO_LEADER", "no leader"), 3 },
        { new KvConditionFailedException("condition", 0, default), 4 },
        { new KvOutcomeUnknownException("unknown"), 5 },
        { new OperationCanceledException(), 5 },
        { new CliException(ExitCodes.VerifyFoundDifferences, "differences"), 6 },
        { new KvException("NO_SHARD", "There is no shard 99."), 2 },
        { new KvException("NO_NODE", "There is no node 9."), 2 },
        { new KvException("NOT_REPLACED", "The replacement in shard 0 was not completed: there is no node 9."), 3 },
        { new KvException("NOT_TRANSFERRED", "The leadership of shard 0 was not transferred: node 9 has no voter of the shard."), 3 },
        { new KvException("NOT_PLACED", "Nothing was changed: there is no node 9."), 3 },
        { new KvException("NOT_RAISED", "Nothing was changed: not all nodes support format level 2 and contract level 1."), 3 },
        { new KvException("TOO_MANY_OWNED", "too many"), 2 },
        { new KvShardsDifferException("two shards", [1, 2]), 2 },
        { new KvNoOwnerException("no session"), 2 },
        { new KvSnapshotTooOldException("too old"), 3 },
        { new KvException("ANSWER_TOO_LARGE", "too large"), 2 },
        { new KvLineageChangedException("restored", ChangeOutcome.NotApplied), 1 },
        { new KvLineageChangedException("restored", ChangeOutcome.Unknown), 5 },
        { new KvUnavailableException("Unavailable", "no reason that is known"), 3 },
        { new KvException("CORRUPT", "corrupt"), 70 },
        { new OutputClosedException(new IOException("No space left on device")), 70 },
        { new InvalidOperationException("a bug"), 70 },
    };

    /// <summary>LINEAGE_CHANGED, TOO_MANY_OWNED and ANSWER_TOO_LARGE looked like bugs, because nobody had thought of them here.</summary>
    [Fact]
    public void Reasons_OfTheContract_HaveEachAnExitCode()
    {
        var contract = ReasonTests.OfContract().Concat(ReasonTests.OfOperators()).ToHashSet(StringComparer.Ordinal);
        Assert.Contains("NODE_UNREACHABLE", contract);
        Assert.Empty(contract.Except(Failures.Reasons));
        Assert.Equal(["TLS_FILE_UNUSABLE"], Failures.Reasons.Except(contract));
    }

    [Theory]
    [MemberData(nameof(Table))]
    public void Describe_OfEachFailure_ReturnsItsExitCodeAndOneLine(Exception failure, int exitCode)
    {
        var (code, line) = Failures.Describe(failure);
        Assert.Equal(exitCode, code);
        Assert.NotEmpty(line);
        Assert.DoesNotContain('\n', line);
    }
}
