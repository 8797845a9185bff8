using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Two journal writes in flight: their order of completion, their answers, and a crash between them.</summary>
public sealed class WritesInFlightTests
{
    [Fact]
    public void LaterWrite_DurableFirst_IsAnsweredAfterTheEarlier()
    {
        using var bench = Opened();
        var answers = new List<Task<WriteResult>> { Submit(bench, "first") };
        OnFirstWrite(bench, () =>
        {
            answers.Add(Submit(bench, "second"));
            RunBeside(bench);
            Assert.All(answers, answer => Assert.False(answer.IsCompleted));
        });
        bench.RunUntilIdle();
        Assert.Equal(2, answers.Count);
        Assert.All(answers, answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
        bench.Close();
        bench.Open();
        Assert.Equal(["first", "second"], bench.ReadAllKeys().Keys);
    }

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [InlineData(nameof(UnsyncedWrites.Torn))]
    public void PowerLoss_OnlyTheLaterWriteDurable_EndsTheJournalBeforeTheEarlier(string unsynced)
    {
        using var bench = Opened();
        bench.Write(request => request.Put("zero"u8, "0"u8));
        var answers = new List<Task<WriteResult>> { Submit(bench, "first") };
        OnFirstWrite(bench, () =>
        {
            answers.Add(Submit(bench, "second"));
            RunBeside(bench);
            bench.Disk.CrashAtCall = bench.Disk.Calls + 1;
        });
        bench.RunUntilIdle();
        Assert.True(bench.Disk.IsOff, "The first write succeeded.");
        Assert.DoesNotContain(answers, answer => answer.IsCompletedSuccessfully && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied);
        bench.Close();
        bench.Disk.Restart(Enum.Parse<UnsyncedWrites>(unsynced), seed: 26);

        bench.Open();
        Assert.Equal(["zero"], bench.ReadAllKeys().Keys);
        // Nothing behind the torn record is read again, not even when the journal has grown past it.
        bench.Write(request => request.Put("after"u8, "1"u8));
        bench.Close();
        bench.Open();
        Assert.Equal(["after", "zero"], bench.ReadAllKeys().Keys);
    }

    /// <summary>A record of some megabytes took a call for each, one after the other, and each waited for the disk.</summary>
    [Theory]
    [InlineData(3_000_000, 1)]
    [InlineData(6_000_000, 2)]
    public void LongRecord_IsWrittenByFewCalls(int bytes, int calls)
    {
        using var bench = OpenedForLongRecords();
        bench.Write(request => request.Put("first"u8, "1"u8));
        var writes = 0;
        bench.Disk.Refuse = (operation, path) =>
        {
            writes += operation == "Write" && path.Contains("/journal/", StringComparison.Ordinal) ? 1 : 0;
            return null;
        };
        bench.Write(request => request.Put("long"u8, new byte[bytes]));
        Assert.Equal(calls, writes);
        bench.Close();
        bench.Open();
        Assert.Equal(["first", "long"], bench.ReadAllKeys().Keys);
    }

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [InlineData(nameof(UnsyncedWrites.Torn))]
    public void PowerLoss_InTheSecondCallOfALongRecord_EndsTheJournalBeforeIt(string unsynced)
    {
        using var bench = OpenedForLongRecords();
        bench.Write(request => request.Put("first"u8, "1"u8));
        var writes = 0;
        bench.Disk.Refuse = (operation, path) =>
        {
            if (operation == "Write" && path.Contains("/journal/", StringComparison.Ordinal) && ++writes == 2)
                bench.Disk.CrashAtCall = bench.Disk.Calls + 1;
            return null;
        };
        var value = new byte[6_000_000];
        new Random(1).NextBytes(value);
        var answer = bench.Submit(request => request.Put("long"u8, value));
        bench.RunUntilIdle();
        Assert.True(bench.Disk.IsOff, "The record was written.");
        Assert.False(answer.IsCompletedSuccessfully && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied);
        bench.Close();
        bench.Disk.Restart(Enum.Parse<UnsyncedWrites>(unsynced), seed: 26);

        bench.Open();
        Assert.Equal(["first"], bench.ReadAllKeys().Keys);
        bench.Write(request => request.Put("after"u8, "1"u8));
        bench.Close();
        bench.Open();
        Assert.Equal(["after", "first"], bench.ReadAllKeys().Keys);
    }

    [Fact]
    public void EarlierWrite_Failing_EndsTheEngineWithoutAnAnswerForTheLater()
    {
        using var bench = Opened();
        var answers = new List<Task<WriteResult>> { Submit(bench, "first") };
        OnFirstWrite(bench, () =>
        {
            answers.Add(Submit(bench, "second"));
            RunBeside(bench);
            bench.Disk.Refuse = (operation, path) => new StorageIoException(operation, path, "the device is gone");
        });
        bench.RunUntilIdle();
        Assert.IsType<StorageIoException>(bench.Store.Life.Failure);
        Assert.Equal(2, answers.Count);
        Assert.All(answers, answer => Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(answer).Outcome));
    }

    [Fact]
    public void BothWrites_Failing_KeepsTheFirstFailure()
    {
        using var bench = Opened();
        _ = Submit(bench, "first");
        OnFirstWrite(bench, () =>
        {
            _ = Submit(bench, "second");
            bench.Disk.Refuse = (operation, path) => new StorageIoException(operation, path, "the device is gone");
            RunBeside(bench);
            bench.Disk.Refuse = (operation, path) => new StorageIoException(operation, path, "it is still gone");
        });
        bench.RunUntilIdle();
        Assert.Contains("the device is gone", Assert.IsType<StorageIoException>(bench.Store.Life.Failure).Message, StringComparison.Ordinal);
    }

    [Fact]
    public void ControlState_WaitsForTheWritesInFlight_AndIsDurableAfterThem()
    {
        using var bench = Opened();
        var answer = Submit(bench, "first");
        var committed = bench.Store.Log.Last.Etag;
        var wasWritten = false;
        OnFirstWrite(bench, () =>
        {
            bench.Store.Log.WriteControl(bench.Store.Durable.Control with { Committed = committed });
            bench.RunUntilIdle();
            wasWritten = bench.Store.Durable.Control.Committed == committed;
        });
        bench.RunUntilIdle();
        Assert.False(wasWritten);
        Assert.Equal(committed, bench.Store.Durable.Control.Committed);
        Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
    }

    /// <summary>The first segment has space for all records of a test, also for those of some megabytes.</summary>
    private static StoreBench OpenedForLongRecords()
    {
        const int Bytes = 16 << 20;
        var bench = new StoreBench(
            options: StoreBench.SmallOptions with { FillSegments = false, SegmentBytesFirst = Bytes, SegmentBytesMin = Bytes, SegmentBytesMax = Bytes });
        bench.Open();
        return bench;
    }

    /// <summary>The first segment has space for all records of a test.</summary>
    private static StoreBench Opened()
    {
        var bench = new StoreBench(options: StoreBench.SmallOptions with { SegmentBytesMin = 64 << 10 });
        bench.Open();
        return bench;
    }

    private static Task<WriteResult> Submit(StoreBench bench, string key) => bench.Submit(request => request.Put(StoreBench.Text(key), "1"u8));

    /// <summary>Runs an action once, when the next write into the current segment has begun.</summary>
    private static void OnFirstWrite(StoreBench bench, Action meanwhile)
    {
        var segment = bench.Disk.OpenPaths.First(path => path.EndsWith(".journal", StringComparison.Ordinal));
        bench.Disk.DuringWrite = path =>
        {
            if (path != segment)
                return;
            bench.Disk.DuringWrite = null;
            meanwhile();
        };
    }

    /// <summary>Runs everything that can run while a write is in progress, including another write into the same segment.</summary>
    private static void RunBeside(StoreBench bench)
    {
        var written = new List<string>();
        bench.Disk.DuringWrite = written.Add;
        bench.RunUntilIdle();
        bench.Disk.DuringWrite = null;
        Assert.Contains(written, path => path == bench.Disk.OpenPaths.First(open => open.EndsWith(".journal", StringComparison.Ordinal)));
    }
}
