using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// On a file system without direct I/O, a journal write that failed remained in the page cache. The process ended, as it should. The next one read
/// the record from there, counted it as durable and acknowledged it. A power loss then lost it, because no later sync writes pages that the system
/// considers clean. Now everything that is not proven durable is written again and synced before it counts.
/// </summary>
public sealed class UnsyncedTailRewriteTests : IDisposable
{
    private const int Slot = 4096;
    private const string Control = ReplicaBench.DirectoryPath + "/control";
    private readonly SimulatedDisk _disk = new() { HasDirect = false };
    private readonly ReplicaBench _replica;

    public UnsyncedTailRewriteTests()
    {
        _replica = new ReplicaBench(new(1), disk: _disk);
        _replica.Lead(1);
        _ = _replica.Put("before", "1");
        Assert.Equal(_replica.Store.Log.Last, _replica.Store.Durable.Last);
    }

    public void Dispose() => _replica.Dispose();

    [Fact]
    public void Open_LastWriteFailedInTheCache_CountsOnlyWhatTheDiskHas()
    {
        FailTheNext("Write", ".journal");
        _ = _replica.Put("failed", "2");
        Assert.IsType<StorageIoException>(_replica.FailureTold);

        _replica.Reopen();
        var counted = _replica.Store.Durable.Last;
        _disk.Restart(UnsyncedWrites.Kept);
        _replica.Reopen();
        Assert.Equal(counted, _replica.Store.Log.Last);
    }

    [Fact]
    public void Open_TheTailCannotBeSynced_FailsAndTheNextOneTriesAgain()
    {
        FailTheNext("Write", ".journal");
        _ = _replica.Put("failed", "2");
        FailTheNext("Sync", ".journal");
        Assert.Throws<StorageIoException>(_replica.Reopen);
        _replica.Reopen();
        var counted = _replica.Store.Durable.Last;
        _disk.Restart(UnsyncedWrites.Dropped);
        _replica.Reopen();
        Assert.Equal(counted, _replica.Store.Log.Last);
    }

    [Fact]
    public void Open_PowerLostWhileTheTailIsWrittenAgain_LosesNothingThatWasDurable()
    {
        var durable = _replica.Store.Durable.Last;
        FailTheNext("Write", ".journal");
        _ = _replica.Put("failed", new string('x', 20_000));
        foreach (var mode in Enum.GetValues<UnsyncedWrites>())
        {
            for (var call = 1; ; call++)
            {
                using var disk = _disk.Copy();
                disk.HasDirect = false;
                disk.CrashAtCall = call;
                try
                {
                    new ReplicaBench(new(1), disk: disk).Store.Dispose();
                }
                catch (SimulatedCrashException)
                {
                    // Expected: this is the power loss that the test injects.
                }
                if (!disk.IsOff)
                    break;
                disk.Restart(mode, call);
                using var reopened = new ReplicaBench(new(1), disk: disk);
                Assert.True(reopened.Store.Log.Last.Etag >= durable.Etag, $"{mode}, call {call}: {durable} was durable, but the journal ends at "
                    + $"{reopened.Store.Log.Last}.");
            }
        }
    }

    [Fact]
    public void Open_LongJournal_RewritesOnlyTheTail()
    {
        Assert.Equal(4096, BytesWrittenAgain(hasDirect: false));
        // With direct I/O nothing is in the cache only.
        Assert.Equal(0, BytesWrittenAgain(hasDirect: true));
    }

    // The second of a promise's two writes failed in the cache. The promise seemed to be in both slots and was in one.
    [Fact]
    public void Open_SecondWriteOfAPromiseFailedInTheCache_SyncsBothSlotsBeforeUse()
    {
        foreach (var slot in (int[])[0, 1])
        {
            using var disk = _disk.Copy();
            disk.HasDirect = false;
            using var replica = new ReplicaBench(new(1), disk: disk);
            var writes = 0;
            disk.Fault = call => call is { Operation: "Write", Path: Control } && ++writes == 2 ? DiskFault.SyncLosesData : DiskFault.None;
            replica.Store.Log.WriteControl(replica.Store.Durable.Control with { PromisedEpoch = 7 });
            replica.Run();
            Assert.NotNull(replica.FailureTold);
            disk.Fault = null;
            replica.Reopen();
            Assert.Equal(7ul, replica.Store.Durable.Control.PromisedEpoch);
            disk.Restart(UnsyncedWrites.Kept);
            disk.FlipBit(Control, (slot * Slot) + 32);
            replica.Reopen();
            Assert.Equal(7ul, replica.Store.Durable.Control.PromisedEpoch);
        }
    }

    // Of two concurrent syncs of one file, the system may report a failure to the wrong one.
    [Fact]
    public void Put_ThroughThePageCache_HasOneWriteInFlight()
    {
        foreach (var hasDirect in (bool[])[true, false])
        {
            using var bench = new StoreBench(new SimulatedDisk { HasDirect = hasDirect });
            bench.Open();
            var inFlight = new List<string>();
            var most = 0;
            var answers = new List<Task<WriteResult>>();
            bench.Disk.DuringWrite = path =>
            {
                if (!path.EndsWith(".journal", StringComparison.Ordinal))
                    return;
                inFlight.Add(path);
                most = Math.Max(most, inFlight.Count(other => other == path));
                // Requests that others make meanwhile.
                if (answers.Count < 20)
                {
                    answers.Add(bench.Submit(request => request.Put(StoreBench.Text($"key-{answers.Count}"), new byte[900])));
                    for (var step = 0; step < 20; step++)
                        bench.Step();
                }
                inFlight.RemoveAt(inFlight.Count - 1);
            };
            answers.Add(bench.Submit(request => request.Put("first"u8, new byte[900])));
            bench.RunUntilIdle();
            Assert.All(answers, answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
            Assert.Equal(hasDirect ? 2 : 1, most);
        }
    }

    private static int BytesWrittenAgain(bool hasDirect)
    {
        var disk = new SimulatedDisk { HasDirect = hasDirect };
        using var replica = new ReplicaBench(new(1), disk: disk);
        replica.Lead(1);
        for (var index = 0; index < 40; index++)
            _ = replica.Put($"key-{index}", new string('x', 2000));
        var writtenAgain = 0;
        disk.Fault = call =>
        {
            if (call.Operation == "Write" && call.Path.EndsWith(".journal", StringComparison.Ordinal) && call.Offset > 0)
                writtenAgain += call.Bytes;
            return DiskFault.None;
        };
        replica.Reopen();
        return writtenAgain;
    }

    private void FailTheNext(string operation, string end)
    {
        var isDone = false;
        _disk.Fault = call =>
        {
            if (isDone || call.Operation != operation || !call.Path.EndsWith(end, StringComparison.Ordinal))
                return DiskFault.None;
            isDone = true;
            return DiskFault.SyncLosesData;
        };
    }
}
