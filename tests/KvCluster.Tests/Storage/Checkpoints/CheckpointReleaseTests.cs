using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>The memory of a finished checkpoint, or of a reader that is gone, is returned in steps, so that the writer is not held by it.</summary>
public sealed class CheckpointReleaseTests
{
    private const int Keys = 3_000;
    private static readonly PageStoreOptions _options = new() { MapBytes = 1L << 30, FreeScratchBytesMax = 16 << 20 };

    [Fact]
    public void Finish_OfALargeCheckpoint_ReturnsItsMemoryInSteps()
    {
        using var store = new ModelStore(_options);
        Fill(store, 1);
        var scratch = store.Store.ScratchBytes;
        Assert.True(scratch > 24 << 20, $"Only {scratch} bytes changed.");
        store.Checkpoint();
        Assert.Equal(0, store.Store.ScratchBytes);
        var (reserved, steps) = (store.Store.ScratchReservedBytes, 0);
        Assert.True(reserved > scratch / 2, $"{reserved} of {scratch} bytes are left after one step.");
        for (var more = true; more; steps++)
        {
            more = store.Store.ReleaseSome();
            Assert.True(store.Store.ScratchReservedBytes >= reserved - (2 << 20), $"One step returned {reserved - store.Store.ScratchReservedBytes} bytes.");
            reserved = store.Store.ScratchReservedBytes;
        }
        Assert.InRange(steps, 24, 100);
        Assert.InRange(reserved, 0, 17 << 20);
        store.CheckPublished();
        store.Store.Verify();
    }

    /// <summary>Another checkpoint may begin and finish while the memory of the last one is being returned, and a reader may still use it.</summary>
    [Fact]
    [Trait("Turn", "5")]
    public void Finish_WhileAnEarlierOneIsBeingReturned_LosesNothing()
    {
        using var store = new ModelStore(_options);
        Fill(store, 1);
        store.OpenReader();
        store.Checkpoint();
        Fill(store, 2);
        store.Checkpoint();
        store.CheckReader(0, new Random(1));
        for (var step = 0; store.Store.ReleaseSome(); step++)
        {
            if (step % 8 == 0)
                store.CheckReader(0, new Random(step));
        }
        store.CheckReader(0, new Random(2));
        Assert.True(store.Store.ScratchReservedBytes > 24 << 20, "The reader's memory was returned.");
        store.CloseReader(0);
        while (store.Store.ReleaseSome())
        {
        }
        Assert.InRange(store.Store.ScratchReservedBytes, 0, 17 << 20);
        store.CheckPublished();
        store.Store.Verify();
    }

    /// <summary>The freeze allocated 28 bytes for each changed page, 7 MB for two gigabytes, on the writer.</summary>
    [Fact]
    public void Freeze_OfManyPages_AllocatesLittle()
    {
        using var store = new ModelStore(_options);
        Fill(store, 1);
        object? checkpoint = null;
        var allocated = Allocations.Of(() => checkpoint = store.Store.BeginCheckpoint(static etag => new CheckpointPosition(etag, default, 0), Etag.MaxValue));
        Assert.InRange(allocated, 0, 4_096 + Allocations.Context);
        Assert.NotNull(checkpoint);
    }

    /// <summary>What batches had left since the freeze was retired at once, which took the writer milliseconds.</summary>
    [Fact]
    public void Abandon_OfALargeCheckpoint_TakesSteps()
    {
        using var store = new ModelStore(_options with { StepPages = 100 });
        Fill(store, 1);
        store.OpenReader();
        var checkpoint = store.Store.BeginCheckpoint(static etag => new CheckpointPosition(etag, default, 0), Etag.MaxValue);
        Assert.NotNull(checkpoint);
        Fill(store, 2);
        var steps = 1;
        for (; !store.Store.AbandonStep(checkpoint); steps++)
        {
            store.Batch(batch => batch.Put(TreeId.Kv, BitConverter.GetBytes(steps), [3]));
            store.Publish();
        }
        // Each value has a run of its own.
        Assert.InRange(steps, Keys / 100, 2 * Keys / 100);
        store.CheckPublished();
        store.CheckReader(0, new Random(1));
        store.CloseReader(0);
        store.Checkpoint();
        store.CheckPublished();
        store.Store.Verify();
    }

    private static void Fill(ModelStore store, byte value)
    {
        // A run of one page, beside what the leaf has. The runs are taken in another order than that of the keys, in which they are returned.
        var bytes = new byte[9_000];
        bytes.AsSpan().Fill(value);
        store.Batch(batch =>
        {
            for (var key = 0; key < Keys; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), bytes);
        });
        store.Publish();
    }
}
