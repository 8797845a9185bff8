using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Snapshots;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The disk fails at any one call of what <see cref="DiskFaultTests"/> does not reach: a data file that shrinks and gets holes, a received snapshot, a
/// truncation of the journal, a mark of quarantine, a mapping, and a recovery by an operator. The engine stays down, and neither a restart nor a power loss
/// behind it loses anything. If the disk has no room at that call, the engine goes on as soon as there is some.
/// </summary>
public sealed class MaintenanceFaultTests
{
    private const int RecoveredKeys = 60;

    /// <summary>Two whole pages, because what does not fit into the first is too long for a leaf.</summary>
    private const int LargeValueBytes = 12_400;

    private static readonly TimeSpan UntilLookedAgain = TimeSpan.FromSeconds(2);

    public static TheoryData<string> Faults =>
        new(nameof(DiskFault.Error), nameof(DiskFault.ShortWrite), nameof(DiskFault.SyncLosesData), nameof(DiskFault.ErrorAfterwards));

    /// <summary>Those of every change: everything has arrived, or nothing. The others take their turn.</summary>
    public static TheoryData<string> SomeFaults => new(nameof(DiskFault.ErrorAfterwards), nameof(DiskFault.NoRoom));

    public static TheoryData<string> OtherFaults =>
        new(nameof(DiskFault.Error), nameof(DiskFault.ShortWrite), nameof(DiskFault.SyncLosesData), nameof(DiskFault.NoRoomAfterwards));

    public static TheoryData<string> FaultsAndNoRoom => new(
        nameof(DiskFault.Error), nameof(DiskFault.ShortWrite), nameof(DiskFault.SyncLosesData), nameof(DiskFault.ErrorAfterwards),
        nameof(DiskFault.NoRoom), nameof(DiskFault.NoRoomAfterwards));

    [Theory]
    [MemberData(nameof(FaultsAndNoRoom))]
    [Trait("Turn", "7")]
    public void ShrinkingFile_AnyCallFails_EndsTheEngineOrWaitsForRoomAndLosesNothing(string name)
    {
        var fault = Enum.Parse<DiskFault>(name);
        using var full = Full();
        var operations = new List<string>();
        using (var sound = full.Copy())
        {
            sound.Fault = call =>
            {
                if (call.Changes)
                    operations.Add($"{call.Operation} {call.Path.Split('/')[^1]}");
                return DiskFault.None;
            };
            Assert.Equal(4, Shrink(sound, out _));
        }
        Assert.True(operations.Contains("Make hole data") && operations.Contains("Resize data"), "The file does not shrink: "
            + $"{string.Join(", ", operations.Distinct())}");
        var (happened, wentOn) = (0, 0);
        for (var chosen = 1;
            chosen <= operations.Count; chosen += Seeds.IsLong || operations[chosen - 1] is "Make hole data" or "Resize data" or "Sync data" ? 1 : 3)
        {
            var story = $"{fault} at call {chosen}, {operations[chosen - 1]}";
            using var disk = full.Copy();
            FailAt(disk, chosen, fault);
            var written = Shrink(disk, out var failure);
            happened += disk.CountOf(fault);
            if (!IsNoRoom(fault))
                Assert.True(failure is not null || written == 4, $"{story}: the engine went on.");
            else if (failure is null)
                Assert.Equal((story, 4), (story, written));
            else
                Assert.True(failure is StorageIoException { IsDiskFull: true } && written == 0, $"{story}: after {written} writes the engine ended: {failure}");
            wentOn += failure is null ? 1 : 0;
            disk.Fault = null;
            CheckShrunk(disk, written, story);
            disk.Restart((UnsyncedWrites)(chosen % 4), chosen);
            CheckShrunk(disk, written, story);
        }
        Assert.True(happened > operations.Count / 6 && (!IsNoRoom(fault) || wentOn > happened / 2), $"The fault was injected {happened} times, and the engine "
            + $"went on {wentOn} times.");
    }

    /// <summary>The system reports a failed write-out once. The sync behind it would succeed, although the pages are lost.</summary>
    [Fact]
    public void Checkpoint_WriteOutFails_EndsTheEngineAndLosesNothing()
    {
        using var disk = Full();
        var failed = 0;
        disk.Fault = call => call.Operation == "Write out" && failed++ == 0 ? DiskFault.Error : DiskFault.None;
        var written = Shrink(disk, out var failure);
        Assert.True(failure is StorageIoException && failed == 1, $"After {failed} failures: {failure}");
        disk.Fault = null;
        CheckShrunk(disk, written, "Restarted");
        disk.Restart(UnsyncedWrites.Kept);
        CheckShrunk(disk, written, "After a power loss");
    }

    [Theory]
    [MemberData(nameof(OtherFaults))]
    [Trait("Turn", "7")]
    public void Snapshot_AnyCallOfTheReceiverFailsInAnotherWay_LeavesTheOldStateOrTheNewOne(string name) =>
        Snapshot_AnyCallOfTheReceiverFails_LeavesTheOldStateOrTheNewOne(name);

    [Theory]
    [MemberData(nameof(SomeFaults))]
    public void Snapshot_AnyCallOfTheReceiverFails_LeavesTheOldStateOrTheNewOne(string name)
    {
        var fault = Enum.Parse<DiskFault>(name);
        using var leader = new ReplicaBench(new(1));
        leader.Lead(1);
        for (var index = 0; index < 60; index++)
            leader.Put($"key-{index}", new string('x', index % 20 == 0 ? 20_000 : 900));
        leader.Commit(leader.Store.Log.Last.Etag);
        _ = leader.Store.Checkpoints.RequestAsync();
        leader.Run();
        using var source = leader.Store.Checkpoints.OpenSource();
        var (old, received, repeated) = (0, 0, 0);
        for (var chosen = 1; ; chosen++)
        {
            var story = $"{fault} at call {chosen}";
            using var replica = new ReplicaBench(new(2));
            FailAt(replica.Disk, chosen, fault);
            var isDone = TryInstall(source, replica, ref repeated, story);
            Assert.True(isDone || !IsNoRoom(fault), $"{story}: a lack of room that has passed ended the transfer.");
            replica.Disk.Fault = null;
            replica.Reopen();
            var isNew = CheckReceived(source, replica, story);
            Assert.True(isNew || !IsNoRoom(fault), $"{story}: the snapshot was not received again when there was room.");
            (old, received) = (old + (isNew ? 0 : 1), received + (isNew ? 1 : 0));
            // What it has served counts.
            replica.Store.Dispose();
            replica.Disk.Restart((UnsyncedWrites)(chosen % 4), chosen);
            replica.Reopen();
            Assert.True(CheckReceived(source, replica, story) == isNew, $"{story}: the power loss brought {(isNew ? "the old state back" : "a new state")}.");
            if (isDone && replica.Disk.CountOf(fault) == 0)
                break;
        }
        Assert.True(received > 3 && repeated > 5, $"{old} old states, {received} new ones, {repeated} transfers that were repeated.");
    }

    [Theory]
    [MemberData(nameof(Faults))]
    public void Truncate_AnyCallFails_KeepsEverythingBeforeItAndEndsTheReplica(string name)
    {
        var fault = Enum.Parse<DiskFault>(name);
        for (var chosen = 1; ; chosen++)
        {
            using var leader = new ReplicaBench(new(1));
            using var replica = new ReplicaBench(new(2));
            leader.Lead(1);
            for (var index = 0; index < 6; index++)
                _ = leader.Put($"key-{index}", new string('x', 3_000));
            replica.Follow(leader);
            var tail = replica.Store.Durable.Last;
            FailAt(replica.Disk, chosen, fault);
            replica.Store.Committed.Truncate(new Etag(1, 3));
            replica.Run();
            replica.Disk.Fault = null;
            if (replica.Disk.CountOf(fault) == 0)
            {
                Assert.True(chosen > 5 && replica.FailureTold is null, $"The truncation made {chosen} calls; {replica.FailureTold}");
                return;
            }
            var story = $"{fault} at call {chosen}";
            Assert.True(replica.FailureTold is StorageIoException, $"{story}: {replica.FailureTold}");
            var isTold = replica.CutsTold.Count > 0;
            for (var start = 0; start < 2; start++)
            {
                replica.Reopen();
                Assert.True(replica.Store.Log.Last.Etag == new Etag(1, 3) || (!isTold && replica.Store.Log.Last == tail), $"{story}: after restart {start} the "
                    + $"journal ends with {replica.Store.Log.Last}.");
                replica.Store.Dispose();
                replica.Disk.Restart((UnsyncedWrites)(chosen % 4), chosen);
            }
            replica.Reopen();
        }
    }

    [Theory]
    [InlineData(nameof(DiskFault.NoRoom))]
    [InlineData(nameof(DiskFault.NoRoomAfterwards))]
    public void Truncate_NoRoomAtAnyCall_IsDoneWhenThereIsRoom(string name)
    {
        var fault = Enum.Parse<DiskFault>(name);
        for (var chosen = 1; ; chosen++)
        {
            using var leader = new ReplicaBench(new(1));
            using var replica = new ReplicaBench(new(2));
            leader.Lead(1);
            for (var index = 0; index < 6; index++)
                _ = leader.Put($"key-{index}", new string('x', 3_000));
            replica.Follow(leader);
            FailAt(replica.Disk, chosen, fault);
            replica.Store.Committed.Truncate(new Etag(1, 3));
            replica.Run();
            for (var look = 0; look < 2; look++)
            {
                replica.Time.Advance(UntilLookedAgain);
                replica.Run();
            }
            var story = $"{fault} at call {chosen}";
            Assert.True(replica.FailureTold is null && !replica.Store.Space.IsDiskFull, $"{story}: {replica.FailureTold}");
            Assert.Equal((story, new Etag(1, 3)), (story, replica.CutsTold.Single().Etag));
            replica.Disk.Fault = null;
            for (var start = 0; start < 2; start++)
            {
                replica.Reopen();
                Assert.Equal((story, new Etag(1, 3)), (story, replica.Store.Log.Last.Etag));
                replica.Store.Dispose();
                replica.Disk.Restart((UnsyncedWrites)(chosen % 4), chosen);
            }
            replica.Reopen();
            if (replica.Disk.CountOf(fault) > 0)
                continue;
            Assert.True(chosen > 5, $"The truncation made {chosen} calls.");
            return;
        }
    }

    [Theory]
    [MemberData(nameof(OtherFaults))]
    [Trait("Turn", "4")]
    public void Recovery_AnyCallFailsInAnotherWay_LosesNothingAndCanBeRepeated(string name) => Recovery_AnyCallFails_LosesNothingAndCanBeRepeated(name);

    /// <summary>
    /// An operator recovers a replica, and a call fails. What was there before is in its place with every byte, or under the name that was told, and then what
    /// was recovered is complete. The next attempt succeeds.
    /// </summary>
    [Theory]
    [MemberData(nameof(SomeFaults))]
    public void Recovery_AnyCallFails_LosesNothingAndCanBeRepeated(string name)
    {
        var fault = Enum.Parse<DiskFault>(name);
        const string Old = StoreBench.DirectoryPath + StoreRecovery.OldSuffix, New = StoreBench.DirectoryPath + StoreRecovery.NewSuffix;
        using var damaged = Damaged();
        var before = NamesAndChecksums(damaged, StoreBench.DirectoryPath);
        var (unchanged, moved) = (0, 0);
        for (var chosen = 1; ; chosen++)
        {
            var story = $"{fault} at call {chosen}";
            using var disk = damaged.Copy();
            FailAt(disk, chosen, fault);
            var thrown = Record.Exception(() => Recover(disk));
            if (disk.CountOf(fault) == 0)
            {
                Assert.True(thrown is null && unchanged > 10 && moved > 0, $"The directory was unchanged {unchanged} times and moved {moved} times; {thrown}");
                return;
            }
            // A file that could not grow by as much as is wanted grows by what is needed.
            var isDone = thrown is null && IsNoRoom(fault);
            Assert.True(isDone || (thrown is StorageIoException failed && failed.IsDiskFull == IsNoRoom(fault)), $"{story}: {thrown}");
            Assert.True(disk.OpenPaths.Count == 0, $"{story}: {string.Join(", ", disk.OpenPaths)} stay open.");
            disk.Fault = null;
            var isMoved = disk.DirectoryExists(Old);
            Assert.True(isMoved || !isDone, $"{story}: the recovery reported success, but nothing is in place.");
            Assert.Equal((story, before), (story, NamesAndChecksums(disk, isMoved ? Old : StoreBench.DirectoryPath)));
            (unchanged, moved) = (unchanged + (isMoved ? 0 : 1), moved + (isMoved ? 1 : 0));
            if (!isMoved)
                Recover(disk);
            else if (!disk.DirectoryExists(StoreBench.DirectoryPath))
                disk.Rename(New, StoreBench.DirectoryPath);
            disk.SyncDirectory("/");
            disk.Restart((UnsyncedWrites)(chosen % 4), chosen);
            using var bench = new StoreBench(disk);
            bench.Open();
            Assert.Equal((story, RecoveredKeys), (story, bench.ReadAllKeys().Count));
        }
    }

    [Theory]
    [MemberData(nameof(FaultsAndNoRoom))]
    public void Quarantine_AnyCallFails_IsReportedAndRefusesOrChangesNothing(string name)
    {
        var fault = Enum.Parse<DiskFault>(name);
        var (marked, unmarked) = (0, 0);
        for (var chosen = 1; ; chosen++)
        {
            using var replica = new ReplicaBench(new(1));
            replica.Run();
            replica.Store.Dispose();
            FailAt(replica.Disk, chosen, fault);
            var thrown = Record.Exception(() => QuarantineMark.Write(replica.Disk, ReplicaBench.DirectoryPath, "a test"));
            replica.Disk.Fault = null;
            var opened = Record.Exception(replica.Reopen);
            (marked, unmarked) = (marked + (opened is null ? 0 : 1), unmarked + (opened is null ? 1 : 0));
            Assert.True(opened is null or RecoveryRefusedException { Row: "quarantined" }, $"Call {chosen}: {opened}");
            replica.IsDamaged = true;
            if (thrown is null)
                break;
            Assert.IsType<StorageIoException>(thrown);
        }
        // The first call creates the mark.
        Assert.Equal(fault is DiskFault.ErrorAfterwards or DiskFault.NoRoomAfterwards ? 0 : 1, unmarked);
        Assert.True(marked > 2, $"{marked} times the mark was there, {unmarked} times not.");
    }

    /// <summary>A lack of address space or of mappings is no damage. The next open succeeds.</summary>
    [Fact]
    public void Open_MappingFails_IsNoDamageAndLeavesNothingOpen()
    {
        using var replica = new ReplicaBench(new(1));
        replica.Lead(1);
        replica.Put("key", "1");
        replica.Commit(replica.Store.Log.Last.Etag);
        replica.Run();
        var last = replica.Store.Log.Last;
        replica.Store.Dispose();
        replica.Disk.Fault = call => call.Operation == "Map" ? DiskFault.Error : DiskFault.None;
        Assert.Throws<StorageIoException>(() => ReplicaStore.Open(replica.Context, ReplicaBench.DirectoryPath, mayRecover: true));
        Assert.Empty(replica.Disk.OpenPaths);
        replica.Disk.Fault = null;
        replica.Reopen();
        Assert.Equal(last, replica.Store.Log.Last);
    }

    private static bool IsNoRoom(DiskFault fault) => fault is DiskFault.NoRoom or DiskFault.NoRoomAfterwards;

    private static void FailAt(SimulatedDisk disk, int chosen, DiskFault fault)
    {
        var calls = 0;
        disk.Fault = call => call.Changes && ++calls == chosen ? fault : DiskFault.None;
    }

    /// <summary>A store whose file is large, and closed.</summary>
    private static SimulatedDisk Full()
    {
        var disk = new SimulatedDisk();
        var bench = new StoreBench(disk);
        bench.Open();
        Assert.Equal(WriteOutcome.Applied, bench.Write(request =>
        {
            for (var key = 0; key < 300; key++)
                request.Put(StoreBench.Text($"key-{key:000}"), StoreBench.Text(new string('x', LargeValueBytes)));
        }).Outcome);
        bench.Checkpoint();
        bench.Close();
        return disk;
    }

    /// <summary>
    /// Deletes most, and writes checkpoints that make holes and cut the file. Returns how many of four writes were answered, and what ended the engine, after
    /// which nothing is written, or kept it from opening. While there is no room, it waits and tries again.
    /// </summary>
    private static int Shrink(SimulatedDisk disk, out Exception? failure)
    {
        var bench = new StoreBench(disk);
        var written = 0;
        try
        {
            bench.Open();
            for (var attempt = 0; written < 4 && attempt < 8 && !bench.Standalone.Failure.IsCompleted; attempt++)
            {
                if (!TryDelete(bench, written))
                    continue;
                written++;
                for (var checkpoint = 0; checkpoint < 2; checkpoint++)
                {
                    _ = bench.Store.Checkpoints.RequestAsync();
                    bench.RunUntilIdle();
                }
            }
            failure = bench.Store.Life.Failure;
            if (failure is not null)
                bench.CheckStaysDown();
        }
        catch (StorageIoException opening)
        {
            failure = opening;
        }
        bench.Close();
        return written;
    }

    /// <summary>Deletes all but twenty keys, and in the last step nothing.</summary>
    private static bool TryDelete(StoreBench bench, int step)
    {
        var answer = bench.Submit(request =>
        {
            for (var key = 20 + step; step < 3 && key < 300; key++)
                request.Delete(StoreBench.Text($"key-{key:000}"));
            request.Put(StoreBench.Text("last"), StoreBench.Text($"{step}"));
        });
        bench.RunUntilIdle();
        for (var look = 0; look < 2 && bench.Store.Space.IsDiskFull; look++)
        {
            bench.Time.Advance(UntilLookedAgain);
            bench.RunUntilIdle();
        }
        return answer.IsCompleted && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied;
    }

    private static void CheckShrunk(SimulatedDisk disk, int written, string story)
    {
        var bench = new StoreBench(disk);
        bench.Open();
        var keys = bench.ReadAllKeys();
        bench.Store.Pages.Verify();
        bench.Close();
        var steps = keys.TryGetValue("last", out var last) ? int.Parse(last, System.Globalization.CultureInfo.InvariantCulture) + 1 : 0;
        Assert.True(steps >= written, $"{story}: {written} writes were answered, but {steps} are in the store.");
        var expected = steps == 0 ? 300 : 20;
        Assert.True(
            keys.Keys.Count(key => key != "last") == expected && keys.Values.Count(value => value.Length == LargeValueBytes) == expected,
            $"{story}: after {steps} writes there are {keys.Count} keys.");
    }

    /// <summary>
    /// Receives a snapshot and switches to it. A transfer that fails is discarded and repeated while the old state serves; a failure behind it ends the
    /// process. False if it failed.
    /// </summary>
    private static bool TryInstall(SnapshotSource source, ReplicaBench replica, ref int repeated, string story)
    {
        SnapshotInstaller? installer = null;
        var control = replica.Store.Durable.Control with { Committed = source.Covers.Etag, Acknowledged = source.Covers.Etag };
        try
        {
            for (var attempt = 0; installer is null; attempt++)
            {
                Assert.True(attempt < 2, $"{story}: the transfer fails again.");
                installer = TryReceive(source, replica);
                repeated += installer is null ? 1 : 0;
                Assert.Null(replica.Read("key-1"));
            }
            replica.Store.Dispose();
            try
            {
                installer.SwitchIn(control);
            }
            catch (StorageIoException failure) when (failure.IsDiskFull)
            {
                // There is room by now.
                installer.SwitchIn(control);
            }
            return true;
        }
        catch (StorageIoException)
        {
            return false;
        }
        finally
        {
            installer?.Dispose();
        }
    }

    private static SnapshotInstaller? TryReceive(SnapshotSource source, ReplicaBench replica)
    {
        SnapshotInstaller? installer = null;
        try
        {
            installer = new SnapshotInstaller(replica.Context, ReplicaBench.DirectoryPath, source.Covers.Etag, source.Covers.ChainChecksum, source.BytesTotal);
            var chunk = new byte[20_000];
            while (installer.BytesStored < source.BytesTotal)
                installer.Store(chunk.AsSpan(0, source.Read(chunk, installer.BytesStored)));
            installer.Complete(replica.Store.Durable.Control);
            return installer;
        }
        catch (StorageIoException)
        {
            installer?.Discard();
            return null;
        }
    }

    /// <summary>Whether the replica has the received state. Otherwise it has nothing, as before.</summary>
    private static bool CheckReceived(SnapshotSource source, ReplicaBench replica, string story)
    {
        var isNew = replica.Store.Log.Last.Etag == source.Covers.Etag;
        Assert.True(isNew || replica.Store.Log.Last.Etag == default, $"{story}: the journal ends with {replica.Store.Log.Last}.");
        Assert.True(replica.Read("key-1") == (isNew ? new string('x', 900) : null), $"{story}: the state is not that of its journal.");
        replica.Store.Pages.Verify();
        return isNew;
    }

    /// <summary>A replica whose control file is lost, with a checkpoint and records behind it.</summary>
    private static SimulatedDisk Damaged()
    {
        var disk = new SimulatedDisk();
        var bench = new StoreBench(disk);
        bench.Open();
        for (var key = 0; key < RecoveredKeys; key++)
        {
            Assert.Equal(
                WriteOutcome.Applied,
                bench.Write(request => request.Put(StoreBench.Text($"key-{key:000}"), StoreBench.Text(new string('x', key % 20 == 0 ? 20_000 : 400)))).Outcome);
            if (key == RecoveredKeys / 2)
                bench.Checkpoint();
        }
        bench.Close();
        disk.WriteAll(StoreBench.DirectoryPath + "/control", new byte[8192]);
        disk.Restart(UnsyncedWrites.Kept);
        return disk;
    }

    private static void Recover(SimulatedDisk disk)
    {
        using var recovery = StoreRecovery.Begin(disk, StoreBench.DirectoryPath, clusterHash: 0);
        recovery.Run();
    }

    /// <summary>The files of a directory by their names in it, each with its checksum.</summary>
    private static string NamesAndChecksums(SimulatedDisk disk, string directory) =>
        string.Join('\n', StoreBench.FilesOf(disk, directory).Select(file => file[directory.Length..]));
}
