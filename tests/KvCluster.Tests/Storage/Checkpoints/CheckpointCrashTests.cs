using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>Wherever power is lost, a checkpoint either happens completely or not at all (S1, S2, S8). A full disk delays it.</summary>
public sealed class CheckpointCrashTests
{
    /// <summary>Of two checkpoints into the same meta page one is interrupted at its odd calls and one at its even calls.</summary>
    [Theory]
    [InlineData((int)UnsyncedWrites.Dropped, false)]
    [InlineData((int)UnsyncedWrites.Torn, true)]
    public void Crash_AtEverySecondCallOfACheckpoint_LeavesTheOldOrTheNewState(int unsynced, bool withDeltas) =>
        CrashInCheckpoints((UnsyncedWrites)unsynced, withDeltas, stride: 2);

    [Theory]
    [InlineData((int)UnsyncedWrites.Dropped, false)]
    [InlineData((int)UnsyncedWrites.Torn, false)]
    [InlineData((int)UnsyncedWrites.Torn, true)]
    [Trait("Turn", "1")]
    public void Crash_AtEveryCallOfACheckpoint_LeavesTheOldOrTheNewState(int unsynced, bool withDeltas) =>
        CrashInCheckpoints((UnsyncedWrites)unsynced, withDeltas, stride: 1);

    [Theory]
    [InlineData((int)UnsyncedWrites.Kept)]
    [InlineData((int)UnsyncedWrites.Reordered)]
    [Trait("Turn", "5")]
    public void Crash_AtEveryCallOfACheckpointInOtherModes_LeavesTheOldOrTheNewState(int unsynced) =>
        CrashInCheckpoints((UnsyncedWrites)unsynced, withDeltas: false, stride: 1);

    [Fact]
    public void Crash_DuringCreation_LeavesNoFileOrAWholeOne()
    {
        var call = 0;
        var created = false;
        while (!created)
        {
            using var disk = new SimulatedDisk { CrashAtCall = ++call };
            var options = new PageStoreOptions { MapBytes = 1 << 26 };
            try
            {
                PageStore.Create(disk, "data", options, new byte[16]).Dispose();
                disk.SyncDirectory("");
                created = true;
            }
            catch (SimulatedCrashException)
            {
                created = false;
            }
            disk.CrashAtCall = 0;
            if (!created)
                continue;
            disk.Restart(UnsyncedWrites.Dropped);
            using var store = PageStore.Open(disk, "data", options);
            store.Verify();
        }
        Assert.True(call > 3, $"Creation took {call} calls.");
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void DiskFull_AtEveryWriteOfACheckpoint_PutsItOff(bool withDeltas) => Seeds.Run(2, random =>
    {
        var refused = 0;
        for (var capacityPages = 0; capacityPages < 60; capacityPages += Seeds.IsLong ? 3 : 7)
        {
            using var store = new ModelStore(Options(withDeltas));
            Fill(store, random, 400);
            store.Checkpoint();
            Fill(store, random, 400);
            store.Disk.CapacityBytes = store.Disk.UsedBytes + (capacityPages * 8192);
            Assert.True(store.BeginCheckpoint());
            try
            {
                store.WriteCheckpoint();
                store.FinishCheckpoint();
            }
            catch (StorageIoException exception) when (exception.IsDiskFull)
            {
                refused++;
                store.AbandonCheckpoint();
            }
            store.CheckPublished();
            Fill(store, random, 100);
            store.Disk.CapacityBytes = long.MaxValue;
            store.Checkpoint();
            store.Store.Verify();
            store.Reopen();
            store.CheckPublished();
            store.Store.Verify();
        }
        Assert.True(refused > 0, "No checkpoint met the full disk.");
    });

    /// <summary>Checkpoints that fold deltas take both meta pages where the one before has much.</summary>
    private static PageStoreOptions Options(bool withDeltas) =>
        new() { MapBytes = 1L << 30, DeltaBytesMax = withDeltas ? ScratchPool.BlockBytesMax : 0, OlderBytesMax = 0 };

    /// <summary>Crashes at calls of checkpoints after one to four others, so that both meta pages and reused pages are hit.</summary>
    private static void CrashInCheckpoints(UnsyncedWrites unsynced, bool withDeltas, int stride)
    {
        for (var rounds = 1; rounds <= 4; rounds++)
        {
            var call = 1 + (rounds / 2 % stride);
            while (CrashAt(call, rounds, unsynced, withDeltas))
                call += stride;
            Assert.True(call > 6, $"The checkpoint after {rounds} others took fewer than {call} calls.");
        }
    }

    private static bool CrashAt(int call, int rounds, UnsyncedWrites unsynced, bool withDeltas)
    {
        var random = new Random(rounds);
        // Short writes, so that a checkpoint has many.
        using var store = new ModelStore(Options(withDeltas) with { WriteBytes = 64 << 10 });
        for (var round = 0; round < rounds; round++)
        {
            Fill(store, random, 120);
            store.Checkpoint();
        }
        Fill(store, random, 120);
        Assert.True(store.BeginCheckpoint());
        var crashed = store.CrashWritingCheckpoint(call);
        store.ReopenAfterCrashInCheckpoint(unsynced, seed: call);
        store.CheckPublished();
        store.Store.Verify();
        // The surviving state must be usable: two more checkpoints overwrite the pages that are free now.
        for (var round = 0; round < 2; round++)
        {
            Fill(store, random, 60);
            store.Checkpoint();
        }
        store.CheckPublished();
        store.Store.Verify();
        store.Reopen(UnsyncedWrites.Dropped);
        store.CheckPublished();
        return crashed;
    }

    private static void Fill(ModelStore store, Random random, int count)
    {
        store.Batch(batch =>
        {
            for (var i = 0; i < count; i++)
            {
                var profile = KeyProfile.All[i % 7 == 0 ? 4 : 2];
                batch.Put(TreeId.Kv, profile.Key(random), profile.Value(random));
            }
            batch.DeleteSomeRange(TreeId.Kv, KeyProfile.All[2], random);
            for (var i = 0; i < count / 10; i++)
                batch.ChangeSomeSet(KeyProfile.All[2], random);
        });
        store.Publish();
    }
}
