using KvCluster.Storage.Sessions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>With a shared journal, new segments and control states are not for the threads on which records of several stores meet.</summary>
public sealed class JournalAsideTests
{
    private const int ValueBytes = 3_000;

    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void NewSegment_OfOneStore_KeepsNoRecordOfOthersWaiting(int lanes)
    {
        using var bench = new SharedBench(lanes: lanes).Open();
        var needsSegment = WriteUntilASegmentIsNeeded(bench);
        Task<WriteResult>[] others = [bench[1].SubmitNext(ValueBytes), bench[2].SubmitNext(ValueBytes)];
        bench.RunButAside();
        Assert.All(others, static answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
        Assert.False(needsSegment.IsCompleted);
        bench.RunUntilIdle();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(needsSegment).Outcome);
    }

    /// <summary>The lane that has made the segment would write the record alone.</summary>
    [Fact]
    public void RecordThatNeededASegment_MeetsThoseOfOthers()
    {
        using var bench = new SharedBench(lanes: 1).Open();
        var needsSegment = WriteUntilASegmentIsNeeded(bench);
        var other = bench[1].SubmitNext(ValueBytes);
        var blocks = bench.Shared.Blocks;
        bench.RunToJournals();
        bench.RunUntilIdle();
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(needsSegment).Outcome);
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(other).Outcome);
        Assert.Equal(blocks + 1, bench.Shared.Blocks);
    }

    // Writes to the first store until a record waits for the lane aside, which does not run, and returns the answer to it.
    private static Task<WriteResult> WriteUntilASegmentIsNeeded(SharedBench bench)
    {
        for (var writes = 0; writes < 1_000; writes++)
        {
            var answer = bench[0].SubmitNext(ValueBytes);
            bench.RunButAside();
            if (!answer.IsCompleted)
                return answer;
        }
        throw new InvalidOperationException("The segment never became full.");
    }
}
