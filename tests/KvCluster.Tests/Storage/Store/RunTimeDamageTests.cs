using KvCluster.Storage;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// F16 while a replica runs: whoever meets the bad bytes first, the replica ends with an exception that says so by its type, and another
/// replica on the same threads goes on.
/// </summary>
public sealed class RunTimeDamageTests
{
    private const string Data = ReplicaBench.DirectoryPath + "/state-00000001/data";

    [Fact]
    public void Read_DamagedPage_FailsTheReadAndEndsTheReplica()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        Assert.Throws<CorruptStoreException>(() => bench.Read("key-7"));
        Assert.Null(bench.FailureTold);
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
        Assert.Throws<StoreStoppedException>(() => bench.Store.OpenSnapshot());
    }

    [Fact]
    public void Digest_DamagedPage_EndsTheReplica()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        Assert.Throws<CorruptStoreException>(() => bench.Digest());
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void Append_DamagedPage_EndsTheReplicaAndAnswersItsCallers()
    {
        using var bench = Checkpointed();
        FlipEveryPage(bench);
        bench.Lead(2);
        var answer = bench.Submit(request => request.Put("key-7"u8, "2"u8));
        Assert.False(bench.Store.TryAppendBatch(ReplicaBench.WallTime, out _));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
        Assert.NotEqual(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
    }

    [Fact]
    public void ReadBodies_DamagedRecord_EndsTheReplica()
    {
        using var bench = Checkpointed();
        var journal = ReplicaBench.DirectoryPath + "/state-00000001/journal";
        var names = bench.Disk.List(journal);
        foreach (var path in names.Select(name => $"{journal}/{name}").Where(path => bench.Disk.ReadAll(path).Length > 8192))
        {
            for (var offset = 4096 + 60; offset < bench.Disk.ReadAll(path).Length; offset += 4096)
                bench.Disk.FlipBit(path, offset);
        }
        Assert.Equal(-1, bench.Store.ReadBodies(0, int.MaxValue, []));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    /// <summary>A replica that was opened again, so that none of its pages is in memory or checked.</summary>
    private static ReplicaBench Checkpointed()
    {
        var bench = new ReplicaBench(1, StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 20 });
        bench.Lead(1);
        for (var index = 0; index < 40; index++)
            _ = bench.Put($"key-{index}", new string('x', 1500));
        bench.Store.Commit(bench.Store.Last.Etag);
        var done = bench.Store.CheckpointAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully);
        bench.Reopen();
        return bench;
    }

    private static void FlipEveryPage(ReplicaBench bench)
    {
        for (var offset = 2L * 8192; offset < bench.Disk.ReadAll(Data).Length; offset += 8192)
            bench.Disk.FlipBit(Data, offset + 70);
    }
}
