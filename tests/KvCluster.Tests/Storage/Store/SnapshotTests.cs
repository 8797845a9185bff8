using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A replica that is too far behind gets a checkpoint, and then the journal from there.</summary>
public sealed class SnapshotTests : IDisposable
{
    private const int KeyCount = 300;
    private readonly ReplicaBench _leader = new(new(1));
    private readonly ReplicaBench _follower = new(new(2));

    public SnapshotTests()
    {
        _leader.Lead(1);
        for (var index = 0; index < KeyCount; index++)
            _leader.Put($"key-{index}", new string((char)('a' + (index % 26)), index % 50 == 0 ? 20_000 : 40));
        Checkpoint(_leader);
        _leader.Put("later", "1");
        _leader.Commit(_leader.Store.Log.Last.Etag);
    }

    public void Dispose()
    {
        _leader.Dispose();
        _follower.Dispose();
    }

    [Fact]
    public void Install_InChunksOfAnySize_HasTheLeadersStateAndContinuesFromTheJournal()
    {
        using (var source = _leader.Store.Checkpoints.OpenSource())
        {
            using var installer = Installer(source, _follower);
            Transfer(source, installer, new Random(5));
            var covers = installer.Complete(_follower.Store.Durable.Control);
            Assert.Equal((source.Covers.Etag, source.Covers.ChainChecksum), (covers.Etag, covers.ChainChecksum));
            Assert.Null(_follower.Read("key-1"));
            _follower.Store.Dispose();
            installer.SwitchIn(_follower.Store.Durable.Control with { Committed = covers.Etag, Acknowledged = covers.Etag });
        }
        _follower.Reopen();
        Assert.Equal(_follower.Store.Pages.Roots.PublishedEtag, _follower.Store.Durable.Control.Committed);
        Assert.Equal(_leader.Store.Pages.Meta.Newest.ShardTime, _follower.Store.Pages.Roots.Published.ShardTime);
        Assert.NotEqual(0, _follower.Store.Pages.Roots.Published.ShardTime);
        Assert.Equal(new string('b', 40), _follower.Read("key-1"));
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        Assert.Equal(_leader.Digest(), _follower.Digest());
        Checkpoint(_follower);
        _follower.Reopen();
        _follower.Store.Pages.Verify();
        Assert.Equal(["control", "reserve", "running", "state-00000002"], Names());
    }

    /// <summary>
    /// While the format level of a cluster is raised, some of its replicas divide values and some do not yet. Their states are equal, and each takes the file
    /// of the other.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void Install_WhereOneReplicaDividesValuesAndTheOtherDoesNot_HasTheLeadersState(bool leaderDivides) => InstallFromAnother(
        leaderDivides, static divides => StoreBench.SmallOptions with { Pages = StoreBench.SmallOptions.Pages with { DividesValues = divides } },
        MetaPage.FormatVersionMin, MetaPage.FormatVersionOfDividedValues, [40, 2_100, 4_100, 8_120, 9_000, 12_400, 20_000, 40_000]);

    /// <summary>Compression is a matter of each replica. Their states are equal, and each takes the file of the other.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void Install_WhereOneReplicaCompressesValuesAndTheOtherDoesNot_HasTheLeadersState(bool leaderCompresses) => InstallFromAnother(
        leaderCompresses, static compresses => StoreBench.SmallOptions with { Pages = StoreBench.SmallOptions.Pages with { CompressesValues = compresses } },
        MetaPage.FormatVersionOfDividedValues, MetaPage.FormatVersion, [40, 300, 2_100, 9_000, 30_000, 60_000, 320_000]);

    /// <summary>A follower with one setting installs the file of a leader with the other, goes on, and has the leader's state.</summary>
    /// <param name="leaderDoes">Whether it is the leader, and not the follower, that does what the options allow.</param>
    /// <param name="options">The options of a replica that does it, or does not.</param>
    /// <param name="without">The version of a file without it.</param>
    /// <param name="with">The version of a file with it.</param>
    /// <param name="sizes">Bytes of values.</param>
    private void InstallFromAnother(bool leaderDoes, Func<bool, StoreOptions> options, uint without, uint with, int[] sizes)
    {
        using var leader = new ReplicaBench(new(1), options(leaderDoes));
        using var follower = new ReplicaBench(new(2), options(!leaderDoes));
        leader.Lead(1);
        PutAll('a');
        follower.Follow(leader);
        follower.Commit(leader.Store.Log.Last.Etag);
        follower.ApplyAll();
        Assert.Equal(leader.Digest(), follower.Digest());
        Checkpoint(leader);
        var version = leader.Store.Pages.Meta.Newest.Version;
        Assert.Equal(leaderDoes ? with : without, version);
        using (var source = leader.Store.Checkpoints.OpenSource())
        {
            using var installer = Installer(source, follower);
            Transfer(source, installer, null);
            var covers = installer.Complete(follower.Store.Durable.Control);
            follower.Store.Dispose();
            installer.SwitchIn(follower.Store.Durable.Control with { Committed = covers.Etag, Acknowledged = covers.Etag });
        }
        follower.Reopen();
        Assert.Equal(version, follower.Store.Pages.Meta.Newest.Version);
        Assert.Equal(leader.Digest(), follower.Digest());
        PutAll('b');
        follower.Follow(leader);
        follower.Commit(leader.Store.Log.Last.Etag);
        follower.ApplyAll();
        Checkpoint(follower);
        follower.Reopen();
        // One of them does it, and what came so stays so.
        Assert.Equal(with, follower.Store.Pages.Meta.Newest.Version);
        Assert.Equal(leader.Digest(), follower.Digest());
        follower.Store.Pages.Verify();

        void PutAll(char letter)
        {
            foreach (var (index, bytes) in sizes.Index())
            {
                for (var key = 0; key < 4; key++)
                    _ = leader.Put($"key-{key}-{(letter == 'a' ? index : sizes.Length - 1 - index)}", new string(letter, bytes + key));
                leader.Run();
            }
            leader.Commit(leader.Store.Log.Last.Etag);
        }
    }

    [Fact]
    public void Stop_WithWorkInProgress_CompletesAfterItAndStaysReadableUntilClosed()
    {
        var data = $"{ReplicaBench.DirectoryPath}/state-00000001/data";
        _ = _leader.Put("under-way", "1");
        _ = _leader.Store.Checkpoints.RequestAsync();
        var callsWhenQuiet = -1;
        _leader.Store.Stop(() => callsWhenQuiet = _leader.Disk.Calls);
        Assert.Equal(-1, callsWhenQuiet);
        _leader.Run();
        Assert.Equal(_leader.Disk.Calls, callsWhenQuiet);
        Assert.Equal([data], _leader.Disk.OpenPaths);

        // The successor works in the same directory while the old state is still read.
        using var successor = ReplicaStore.Open(_leader.Context, ReplicaBench.DirectoryPath);
        Assert.Equal(_leader.Store.Log.Last, successor.Log.Last);
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

    // A checkpoint that a caller waited for failed when a received snapshot replaced the store, although the replica continued.
    [Fact]
    public void CheckpointAsync_StoreReplaced_IsWrittenByTheNewStore()
    {
        _ = _leader.Put("under-way", "1");
        _leader.Commit(_leader.Store.Log.Last.Etag);
        var before = _leader.Store.Checkpoints.RequestAsync();
        _leader.Store.Stop(static () => { });
        _leader.Run();
        var whileStopped = _leader.Store.Checkpoints.RequestAsync();
        _leader.Run();
        Assert.False(before.IsCompleted || whileStopped.IsCompleted);
        using var successor = ReplicaStore.Open(_leader.Context, ReplicaBench.DirectoryPath);
        successor.Follower.Commit(_leader.Store.Log.Last.Etag);
        successor.Start(_leader);
        successor.Checkpoints.TakeOver(_leader.Store.Checkpoints);
        var closed = _leader.Store.CloseAsync();
        _leader.Run();
        Assert.True(closed.IsCompletedSuccessfully);
        Assert.Equal(successor.Log.Last.Etag, StoreBench.Answer(before).Etag);
        Assert.Equal(successor.Log.Last.Etag, StoreBench.Answer(whileStopped).Etag);
    }

    [Fact]
    public void EndRequests_WhileTheStoreWorks_BreaksAnInvariant()
    {
        Assert.Throws<InvariantException>(() => _leader.Store.Checkpoints.EndRequests());
        var done = _leader.Store.Checkpoints.RequestAsync();
        _leader.Run();
        Assert.True(done.IsCompletedSuccessfully);
    }

    [Fact]
    public void CheckpointAsync_StoreNotReplaced_IsRefused()
    {
        foreach (var ends in (Action[])[() => _leader.Store.Checkpoints.EndRequests(), () => _ = _leader.Store.CloseAsync()])
        {
            _ = _leader.Put("under-way", "1");
            _leader.Commit(_leader.Store.Log.Last.Etag);
            var waits = _leader.Store.Checkpoints.RequestAsync();
            _leader.Store.Stop(static () => { });
            _leader.Run();
            Assert.False(waits.IsCompleted);
            ends();
            _leader.Run();
            Assert.IsType<StoreStoppedException>(waits.Exception!.InnerException);
            _leader.Reopen();
            _leader.Lead(_leader.Store.Log.Last.Epoch + 1);
        }
    }

    [Fact]
    public void Close_ReaderStillOpen_KeepsOnlyTheFileThatItReads()
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
        using var source = _leader.Store.Checkpoints.OpenSource();
        var bytes = new byte[source.BytesTotal];
        Assert.Equal(bytes.Length, source.Read(bytes, 0));
        foreach (var offset in new[] { 1, 9, 15, SnapshotStream.HeaderBytes + 1, (int)source.BytesTotal - Page.Bytes + 100 })
        {
            bytes[offset] ^= 1;
            using var installer = Installer(source, _follower);
            Assert.ThrowsAny<Exception>(() =>
            {
                installer.Store(bytes);
                installer.Complete(_follower.Store.Durable.Control);
            });
            bytes[offset] ^= 1;
        }
        using (var installer = Installer(source, _follower))
        {
            installer.Store(bytes.AsSpan(..^1));
            Assert.Throws<CorruptStoreException>(() => installer.Complete(_follower.Store.Durable.Control));
        }
        _follower.Reopen();
        Assert.Equal(default, _follower.Store.Log.Last.Etag);
        Assert.DoesNotContain("incoming", Names());
    }

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [InlineData(nameof(UnsyncedWrites.Kept))]
    [Trait("Turn", "7")]
    public void Install_PowerLossAtEveryCall_InOtherModes_LeavesTheOldStateOrTheNewOne(string mode) =>
        Install_PowerLossAtEveryCall_LeavesTheOldStateOrTheNewOne(mode);

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Torn))]
    public void Install_PowerLossAtEveryCall_LeavesTheOldStateOrTheNewOne(string mode)
    {
        using var source = _leader.Store.Checkpoints.OpenSource();
        var seen = new HashSet<bool>();
        for (var call = 1; ; call++)
        {
            using var replica = new ReplicaBench(new(3));
            replica.Disk.CrashAtCall = replica.Disk.Calls + call;
            var finished = TryInstall(source, replica);
            replica.Store.Dispose();
            replica.Disk.Restart(Enum.Parse<UnsyncedWrites>(mode), call);
            replica.Reopen();
            var isNew = replica.Store.Log.Last.Etag == source.Covers.Etag;
            Assert.True(isNew || replica.Store.Log.Last.Etag == default, $"{mode}, call {call}: {replica.Store.Log.Last}");
            Assert.Equal(isNew ? new string('b', 40) : null, replica.Read("key-1"));
            replica.Store.Pages.Verify();
            seen.Add(isNew);
            if (finished)
                break;
        }
        Assert.Equal(2, seen.Count);
    }

    [Fact]
    public void Read_PageWentBadOnTheDisk_IsFoundBeforeItIsSent()
    {
        // Receivers detected the damage only after receiving everything, and were themselves marked lost, one after the other.
        var data = $"{ReplicaBench.DirectoryPath}/state-00000001/data";
        var pages = _leader.Disk.ReadAll(data).Length / Page.Bytes;
        var chunk = new byte[5_000];
        var found = 0;
        for (var page = 2; page < pages; page++)
        {
            using var source = _leader.Store.Checkpoints.OpenSource();
            var used = source.Pages.Any(run => page >= run.First && page < run.First + run.Count);
            _leader.Disk.FlipBit(data, (page * Page.Bytes) + 4_000);
            var given = 0L;
            var thrown = Record.Exception(() =>
            {
                while (given < source.BytesTotal)
                    given += source.Read(chunk, given);
            });
            _leader.Disk.FlipBit(data, (page * Page.Bytes) + 4_000);
            Assert.Equal(used, thrown is CorruptStoreException);
            found += used ? 1 : 0;
        }
        Assert.True(found > 3, $"Only {found} pages are in use.");
    }

    [Fact]
    public void Read_WhileTheDiskCannotReadAPage_IsDamageOfTheSender()
    {
        using var source = _leader.Store.Checkpoints.OpenSource();
        var chunk = new byte[source.BytesTotal];
        _leader.IsDamaged = true;
        _leader.Disk.Fault = call =>
            call is { Operation: "Read", Offset: > Page.Bytes } && call.Path.EndsWith("data", StringComparison.Ordinal) ? DiskFault.Error : DiskFault.None;
        Assert.Throws<CorruptStoreException>(() => source.Read(chunk, 0));
    }

    [Fact]
    public void Install_NoRoom_IsRefusedAtTheFirstBytesAndUsesNoSpace()
    {
        // The whole snapshot was sent, and the full disk ended the receiver's process, again after each start.
        using var source = _leader.Store.Checkpoints.OpenSource();
        var used = _follower.Disk.UsedBytes;
        _follower.Disk.CapacityBytes = used + _follower.Context.Options.SnapshotRoomBytes + (source.BytesTotal / 2);
        using (var installer = Installer(source, _follower))
        {
            var chunk = new byte[source.PrefixBytes];
            source.Read(chunk, 0);
            Assert.True(Assert.Throws<StorageIoException>(() => installer.Store(chunk)).IsDiskFull);
            installer.Discard();
        }
        Assert.Equal(used, _follower.Disk.UsedBytes);
        Assert.DoesNotContain("incoming", Names());
        _follower.Disk.CapacityBytes = used + (2 * _follower.Context.Options.SnapshotRoomBytes) + source.BytesTotal;
        using (var installer = Installer(source, _follower))
        {
            Transfer(source, installer, null);
            installer.Complete(_follower.Store.Durable.Control);
            installer.Discard();
        }
        Assert.Equal(used, _follower.Disk.UsedBytes);
    }

    [Fact]
    public void Verify_InSteps_CountsUpToAllPages()
    {
        using var source = _leader.Store.Checkpoints.OpenSource();
        using var installer = Installer(source, _follower);
        Transfer(source, installer, null);
        installer.BeginVerify(_follower.Store.Durable.Control);
        var steps = 1;
        for (var before = installer.BytesVerified; !installer.VerifyStep(Page.Bytes); before = installer.BytesVerified, steps++)
            Assert.True(installer.BytesVerified > before, "A step verified no page.");
        Assert.True(steps > 3, $"{steps} steps.");
        Assert.Equal(source.Pages.Sum(run => run.Count * Page.Bytes), installer.BytesVerified + (2 * Page.Bytes));
    }

    [Fact]
    public void Source_RetainsMoreJournalThanAllowed_IsTakenBack()
    {
        // A snapshot for a follower that was slow or gone kept all journal and all pages from then on.
        using var leader = new ReplicaBench(new(1), StoreBench.SmallOptions with { SnapshotPinnedBytesMax = 300 << 10, RetainedJournalBytes = 0 });
        leader.Lead(1);
        leader.Put("key", "value");
        Checkpoint(leader);
        var why = "";
        using var source = leader.Store.Checkpoints.OpenSource();
        source.TakenBack = reason => why = reason;
        var held = 0L;
        for (var write = 0; write < 20 && why.Length == 0; write++)
        {
            leader.Put("key", new string('x', 100 << 10));
            Checkpoint(leader);
            held = leader.Store.Statistics.JournalBytesBehind(source.Covers.Etag);
        }
        Assert.Contains("than a snapshot may retain", why, StringComparison.Ordinal);
        Assert.InRange(held, 0, 500 << 10);
        Assert.Equal(-1, source.Read(new byte[100], 0));
        source.Dispose();
        leader.Store.Pages.Verify();
    }

    [Fact]
    public void Source_SendersDiskIsFull_IsTakenBack()
    {
        var isTakenBack = false;
        using var source = _leader.Store.Checkpoints.OpenSource();
        source.TakenBack = _ => isTakenBack = true;
        _leader.Disk.CapacityBytes = _leader.Disk.UsedBytes;
        for (var write = 0; write < 30 && !_leader.Store.Space.IsDiskFull; write++)
            _ = _leader.Submit(request => request.Put("full"u8, new byte[200 << 10]), thenAppend: true);
        Assert.True(_leader.Store.Space.IsDiskFull);
        Assert.False(isTakenBack);
        _leader.Time.Advance(TimeSpan.FromSeconds(2));
        _leader.Run();
        Assert.True(isTakenBack);
    }

    [Fact]
    public void CheckPages_PageWentBad_EndsTheStoreSoon()
    {
        var data = $"{ReplicaBench.DirectoryPath}/state-00000001/data";
        using (var source = _leader.Store.Checkpoints.OpenSource())
        {
            foreach (var run in source.Pages)
            {
                for (var page = Math.Max(2, run.First); page < run.First + run.Count; page++)
                    _leader.Disk.FlipBit(data, (page * Page.Bytes) + 4_000);
            }
        }
        _leader.Store.Scrub.Hurry();
        for (var step = 0; step < 100 && _leader.FailureTold is null; step++)
        {
            _leader.Time.Advance(TimeSpan.FromMilliseconds(1));
            _leader.Run();
        }
        Assert.IsType<CorruptStoreException>(_leader.FailureTold);
    }

    private static bool TryInstall(SnapshotSource source, ReplicaBench replica)
    {
        try
        {
            using var installer = Installer(source, replica);
            Transfer(source, installer, null);
            var covers = installer.Complete(replica.Store.Durable.Control);
            replica.Store.Dispose();
            installer.SwitchIn(replica.Store.Durable.Control with { Committed = covers.Etag, Acknowledged = covers.Etag });
            return true;
        }
        catch (SimulatedCrashException)
        {
            return false;
        }
    }

    private static SnapshotInstaller Installer(SnapshotSource source, ReplicaBench receiver) =>
        new(receiver.Context, ReplicaBench.DirectoryPath, source.Covers.Etag, source.Covers.ChainChecksum, source.BytesTotal);

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
        bench.Commit(bench.Store.Log.Last.Etag);
        var done = bench.Store.Checkpoints.RequestAsync();
        bench.Run();
        Assert.True(done.IsCompletedSuccessfully, $"{done.Exception}");
    }

    private IReadOnlyList<string> Names() => _follower.Disk.List(ReplicaBench.DirectoryPath);
}
