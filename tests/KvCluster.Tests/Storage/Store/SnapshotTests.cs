using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A replica that is too far behind gets a checkpoint, and then the journal from there.</summary>
public sealed class SnapshotTests : IDisposable
{
    private const int KeyCount = 300;
    private readonly ReplicaBench _leader = new(1);
    private readonly ReplicaBench _follower = new(2);

    public SnapshotTests()
    {
        _leader.Lead(1);
        for (var index = 0; index < KeyCount; index++)
            _leader.Put($"key-{index}", new string((char)('a' + (index % 26)), index % 50 == 0 ? 20_000 : 40));
        Checkpoint(_leader);
        _leader.Put("later", "1");
        _leader.Store.Commit(_leader.Store.Last.Etag);
    }

    public void Dispose()
    {
        _leader.Dispose();
        _follower.Dispose();
    }

    [Fact]
    public void Install_InChunksOfAnySize_GivesTheLeadersStateAndGoesOnFromTheJournal()
    {
        using (var source = _leader.Store.OpenSnapshotSource())
        {
            using var installer = new SnapshotInstaller(_follower.Context, ReplicaBench.DirectoryPath);
            Transfer(source, installer, new Random(5));
            var covers = installer.Complete(_follower.Store.Control);
            Assert.Equal((source.Covers.Etag, source.Covers.ChainChecksum), (covers.Etag, covers.ChainChecksum));
            Assert.Null(_follower.Read("key-1"));
            _follower.Store.Dispose();
            installer.SwitchIn(_follower.Store.Control with { Committed = covers.Etag, Acknowledged = covers.Etag });
        }
        _follower.Reopen();
        Assert.Equal(_follower.Store.Published, _follower.Store.Control.Committed);
        Assert.Equal(new string('b', 40), _follower.Read("key-1"));
        _follower.Follow(_leader);
        _follower.Store.Commit(_leader.Store.Last.Etag);
        Assert.Equal(_leader.Digest(), _follower.Digest());
        Checkpoint(_follower);
        _follower.Reopen();
        _follower.Store.Verify();
        Assert.Equal(["control", "reserve", "running", "state-00000002"], Names());
    }

    [Fact]
    public void Stop_WithWorkUnderWay_IsQuietOnlyBehindTheWorkAndIsReadUntilItIsClosed()
    {
        var data = $"{ReplicaBench.DirectoryPath}/state-00000001/data";
        _ = _leader.Put("under-way", "1");
        _ = _leader.Store.CheckpointAsync();
        var callsWhenQuiet = -1;
        _leader.Store.Stop(() => callsWhenQuiet = _leader.Disk.Calls);
        Assert.Equal(-1, callsWhenQuiet);
        _leader.Run();
        Assert.Equal(_leader.Disk.Calls, callsWhenQuiet);
        Assert.Equal([data], _leader.Disk.OpenPaths);

        // Its successor works in the same directory while the old state is read.
        using var successor = ReplicaStore.Open(_leader.Context, ReplicaBench.DirectoryPath);
        Assert.Equal(_leader.Store.Last, successor.Last);
        Assert.Equal(new string('b', 40), _leader.Read("key-1"));

        using (var reader = _leader.Store.OpenSnapshot())
        {
            var closed = _leader.Store.CloseAsync();
            _leader.Run();
            Assert.Throws<StoreStoppedException>(() => _leader.Store.OpenSnapshot());
            Assert.False(closed.IsCompleted);
            _leader.Time.Advance(TimeSpan.FromSeconds(11));
            _leader.Run();
            Assert.True(closed.IsCompletedSuccessfully);
            Assert.True(reader.TryGet(TreeId.Kv, "key-1"u8, out _));
        }
    }

    [Fact]
    public void Close_AReaderStays_LetsGoOfAllButTheFileThatItReads()
    {
        using var reader = _leader.Store.OpenSnapshot();
        var closed = _leader.Store.CloseAsync();
        _leader.Run();
        Assert.False(closed.IsCompleted);
        Assert.Equal([$"{ReplicaBench.DirectoryPath}/state-00000001/data"], _leader.Disk.OpenPaths);
        reader.Dispose();
        _leader.Time.Advance(TimeSpan.FromSeconds(1));
        _leader.Run();
        Assert.True(closed.IsCompletedSuccessfully);
        Assert.Empty(_leader.Disk.OpenPaths);
    }

    [Fact]
    public void Install_DamagedStream_IsRefusedAndTheOldStateStays()
    {
        using var source = _leader.Store.OpenSnapshotSource();
        var bytes = new byte[source.BytesTotal];
        Assert.Equal(bytes.Length, source.Read(bytes, 0));
        foreach (var offset in new[] { 1, 9, 15, SnapshotStream.HeaderBytes + 1, (int)source.BytesTotal - Page.Bytes + 100 })
        {
            bytes[offset] ^= 1;
            using var installer = new SnapshotInstaller(_follower.Context, ReplicaBench.DirectoryPath);
            Assert.ThrowsAny<Exception>(() =>
            {
                installer.Store(bytes);
                installer.Complete(_follower.Store.Control);
            });
            bytes[offset] ^= 1;
        }
        using (var installer = new SnapshotInstaller(_follower.Context, ReplicaBench.DirectoryPath))
        {
            installer.Store(bytes.AsSpan(..^1));
            Assert.Throws<CorruptStoreException>(() => installer.Complete(_follower.Store.Control));
        }
        _follower.Reopen();
        Assert.Equal(default, _follower.Store.Last.Etag);
        Assert.DoesNotContain("incoming", Names());
    }

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [InlineData(nameof(UnsyncedWrites.Kept))]
    [InlineData(nameof(UnsyncedWrites.Torn))]
    public void Install_PowerLossAtEveryCall_LeavesTheOldStateOrTheNewOne(string mode)
    {
        using var source = _leader.Store.OpenSnapshotSource();
        var seen = new HashSet<bool>();
        for (var call = 1; ; call++)
        {
            using var replica = new ReplicaBench(3);
            replica.Disk.CrashAtCall = replica.Disk.Calls + call;
            var finished = TryInstall(source, replica);
            replica.Store.Dispose();
            replica.Disk.Restart(Enum.Parse<UnsyncedWrites>(mode), call);
            replica.Reopen();
            var isNew = replica.Store.Last.Etag == source.Covers.Etag;
            Assert.True(isNew || replica.Store.Last.Etag == default, $"{mode}, call {call}: {replica.Store.Last}");
            Assert.Equal(isNew ? new string('b', 40) : null, replica.Read("key-1"));
            replica.Store.Verify();
            seen.Add(isNew);
            if (finished)
                break;
        }
        Assert.Equal(2, seen.Count);
    }

    private static bool TryInstall(SnapshotSource source, ReplicaBench replica)
    {
        try
        {
            using var installer = new SnapshotInstaller(replica.Context, ReplicaBench.DirectoryPath);
            Transfer(source, installer, null);
            var covers = installer.Complete(replica.Store.Control);
            replica.Store.Dispose();
            installer.SwitchIn(replica.Store.Control with { Committed = covers.Etag, Acknowledged = covers.Etag });
            return true;
        }
        catch (SimulatedCrashException)
        {
            return false;
        }
    }

    private static void Transfer(SnapshotSource source, SnapshotInstaller installer, Random? random)
    {
        var chunk = new byte[32 << 10];
        while (installer.BytesStored < source.BytesTotal)
        {
            var length = random is null ? chunk.Length : 1 + random.Next(random.Next(2) == 0 ? 100 : chunk.Length - 1);
            installer.Store(chunk.AsSpan(0, source.Read(chunk.AsSpan(0, length), installer.BytesStored)));
        }
    }

    private static void Checkpoint(ReplicaBench bench)
    {
        bench.Store.Commit(bench.Store.Last.Etag);
        var done = bench.Store.CheckpointAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully, $"{done.Exception}");
    }

    private IReadOnlyList<string> Names() => _follower.Disk.List(ReplicaBench.DirectoryPath);
}
