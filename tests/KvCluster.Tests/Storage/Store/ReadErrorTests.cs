using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// F46: a sector that cannot be read. In a page of the tree it caused a SIGBUS, which ended the process with all its shards, at every touch. In a
/// meta page, the journal or the control file, the replica was reopened again and again. Now it is damage of that replica, which its peers repair.
/// </summary>
public sealed class ReadErrorTests
{
    private const string State = ReplicaBench.DirectoryPath + "/state-00000001";
    private const string Data = State + "/data";
    private const int Keys = 30;

    [Fact]
    public void Read_PageThatTheDiskCannotRead_IsDamage()
    {
        using var bench = Checkpointed();
        MakePagesUnreadable(bench);
        var found = Assert.Throws<CorruptStoreException>(() => bench.Read("key-7"));
        Assert.Contains("cannot be read", found.Message, StringComparison.Ordinal);
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void Append_PageThatTheDiskCannotRead_IsDamage()
    {
        using var bench = Checkpointed();
        MakePagesUnreadable(bench);
        bench.Lead(2);
        var answer = bench.Submit(request => request.Put("key-7"u8, "2"u8));
        Assert.False(bench.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
        Assert.NotEqual(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome);
    }

    [Fact]
    public void Snapshot_PageThatTheDiskCannotRead_IsDamageOfTheSender()
    {
        using var bench = Checkpointed();
        MakePagesUnreadable(bench);
        using (var source = bench.Store.Checkpoints.OpenSource())
            Assert.Throws<CorruptStoreException>(() => source.Read(new byte[source.BytesTotal], 0));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    [Fact]
    public void Scrub_PageThatTheDiskCannotReadAnyMore_IsDamage()
    {
        using var bench = Checkpointed();
        for (var key = 0; key < Keys; key++)
            Assert.NotNull(bench.Read($"key-{key}"));
        MakePagesUnreadable(bench);
        bench.Time.Advance(bench.Context.Options.ScrubInterval + TimeSpan.FromMinutes(1));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    /// <summary>
    /// A page that goes bad after its first touch ends the process. The next start checks all pages at once, because it does not know which one it
    /// was. After a clean stop the check waits for its interval.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Open_PageWentBadBefore_IsFoundAtOnceAfterAnUncleanEnd(bool isClean)
    {
        using var sample = Checkpointed();
        if (isClean)
        {
            var closed = sample.Store.CloseAsync();
            sample.Run();
            Assert.True(closed.IsCompletedSuccessfully);
        }
        int opened = 0, found = 0;
        for (var number = 2; number * 8192 < sample.Disk.ReadAll(Data).Length; number++)
        {
            var disk = sample.Disk.Copy();
            disk.MakeUnreadable(Data, number * 8192, 1);
            try
            {
                using var bench = new ReplicaBench(new(1), disk: disk);
                opened++;
                for (var second = 0; second < 60; second++)
                {
                    bench.Time.Advance(TimeSpan.FromSeconds(1));
                    bench.Run();
                }
                found += bench.FailureTold is CorruptStoreException ? 1 : 0;
                Assert.True(disk.FileExists(ReplicaBench.DirectoryPath + "/running"));
            }
            catch (CorruptStoreException)
            {
                // That page was needed to open the store.
                disk.Dispose();
            }
        }
        Assert.True(opened > Keys * 1500 / 8192, $"The store opened only {opened} times.");
        Assert.True(isClean ? found == 0 : found >= Keys * 1500 / 8192, $"{found} of {opened} bad pages were found.");
    }

    [Fact]
    public void ReadBodies_RecordThatTheDiskCannotRead_IsDamageAndNoFailureOfTheProcess()
    {
        using var bench = Filled();
        bench.Reopen();
        foreach (var path in Files(bench.Disk).Where(path => path.EndsWith(".journal", StringComparison.Ordinal)))
            bench.Disk.MakeUnreadable(path, 4096, 1 << 20);
        Assert.Equal(-1, bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, []));
        bench.Run();
        Assert.IsType<CorruptStoreException>(bench.FailureTold);
    }

    /// <summary>A replica with a checkpoint, journal after it, and everything acknowledged. Each block of each file becomes unreadable in turn.</summary>
    [Fact]
    public void Open_AnyBlockThatTheDiskCannotRead_OpensWithAllOrReportsTheLoss()
    {
        int whole = 0, recovered = 0, refused = 0;
        using var sample = Checkpointed(more: 5);
        foreach (var path in Files(sample.Disk).ToList())
        {
            for (long offset = 0; offset < sample.Disk.ReadAll(path).Length; offset += 4096)
            {
                using var disk = sample.Disk.Copy();
                disk.MakeUnreadable(path, offset, 1);
                try
                {
                    using var store = ReplicaStore.Open(sample.Context with { Files = disk }, ReplicaBench.DirectoryPath, mayRecover: true);
                    if (store.Log.Last == sample.Store.Log.Last)
                        whole++;
                    else if (store.Log.Last.Etag < store.Durable.Control.Acknowledged)
                        recovered++;
                    else
                        Assert.Fail($"{path}, {offset}: the journal ends at {store.Log.Last} and the loss is not reported.");
                }
                catch (CorruptStoreException)
                {
                    // The host treats these as lost, and a peer restores the replica. Any other exception fails the test.
                    refused++;
                }
            }
        }
        Assert.True(whole > 20 && recovered > 3 && refused > 1, $"{whole} opened whole, {recovered} need recovery, {refused} were refused.");
    }

    private static ReplicaBench Checkpointed(int more = 0)
    {
        var bench = Filled();
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully);
        for (var index = 0; index < more; index++)
            _ = bench.Put($"more-{index}", new string('x', 1500));
        bench.CloseAndReopen();
        return bench;
    }

    private static ReplicaBench Filled()
    {
        var bench = new ReplicaBench(new(1), StoreBench.SmallOptions);
        bench.Lead(1);
        for (var index = 0; index < Keys; index++)
            _ = bench.Put($"key-{index}", new string('x', 1500));
        bench.Commit(bench.Store.Log.Last.Etag);
        return bench;
    }

    private static void MakePagesUnreadable(ReplicaBench bench) =>
        bench.Disk.MakeUnreadable(Data, 2 * 8192, bench.Disk.ReadAll(Data).Length - (2 * 8192));

    private static IEnumerable<string> Files(SimulatedDisk disk, string directory = ReplicaBench.DirectoryPath) =>
        disk.List(directory).Select(name => $"{directory}/{name}").SelectMany(path => disk.FileExists(path) ? [path] : Files(disk, path));
}
