using System.Buffers.Binary;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Readers;

/// <summary>Readers on other threads, beside a writer and a checkpoint thread on a real disk, only see consistent states.</summary>
public sealed class ConcurrentReadTests : IDisposable
{
    private const int Keys = 600;
    private readonly TemporaryDirectory _directory = new();

    /// <summary>With fewer slots than places where a thread may begin its search, slots behind the last one were written.</summary>
    [Fact]
    public void PageStore_WithTooFewSnapshots_IsRefused()
    {
        PageStore Create(int snapshotsMax) => PageStore.Create(
            LocalDisk.Instance, Path.Combine(_directory.Path, $"data-{snapshotsMax}"), new PageStoreOptions { SnapshotsMax = snapshotsMax }, new byte[16]);
        Assert.Throws<ArgumentOutOfRangeException>(() => Create(ReaderSlots.SlotsMin - 1));
        Create(ReaderSlots.SlotsMin).Dispose();
    }

    /// <summary>Each batch writes the same round number under all keys, so a mixed state is detected.</summary>
    [Fact]
    public async Task Snapshots_BesideWriterAndCheckpoints_AreWhole()
    {
        using var store = PageStore.Create(LocalDisk.Instance, Path.Combine(_directory.Path, "data"), new PageStoreOptions(), new byte[16]);
        WriteRound(store, 1);
        using var done = new CancellationTokenSource();
        var readers = Enumerable.Range(0, 3).Select(index => Task.Run(() => Read(store, index, done.Token))).ToArray();
        Task? writing = null;
        Checkpoint? checkpoint = null;
        var checkpoints = 0;
        for (var round = 2ul; round < 250 || checkpoints < 5; round++)
        {
            WriteRound(store, round);
            if (writing is { IsCompleted: true })
            {
                await writing;
                store.FinishCheckpoint(checkpoint!);
                (writing, checkpoint) = (null, null);
                checkpoints++;
            }
            if (writing is null && store.BeginCheckpoint(etag => new CheckpointPosition(etag, default, 0), Etag.MaxValue) is { } begun)
            {
                checkpoint = begun;
                writing = Task.Run(begun.Write);
            }
        }
        if (writing is not null)
        {
            await writing;
            store.FinishCheckpoint(checkpoint!);
        }
        await done.CancelAsync();
        var reads = await Task.WhenAll(readers);
        Assert.All(reads, count => Assert.True(count > 0));
        store.Verify();
    }

    public void Dispose() => _directory.Dispose();

    private static void WriteRound(PageStore store, ulong round)
    {
        var batch = store.Begin();
        Span<byte> value = stackalloc byte[80];
        var large = new byte[3000];
        BinaryPrimitives.WriteUInt64LittleEndian(value, round);
        BinaryPrimitives.WriteUInt64LittleEndian(large, round);
        for (var key = 0; key < Keys; key++)
            batch.Put(TreeId.Kv, KeyOf(key), key % 50 == 0 ? large : value);
        store.Roots.Seal(batch, new Etag(1, round));
        store.Roots.Publish(new Etag(1, round));
    }

    private static long Read(PageStore store, int index, CancellationToken done)
    {
        var random = new Random(index);
        var reads = 0L;
        while (!done.IsCancellationRequested || reads == 0)
        {
            using var snapshot = store.Roots.OpenSnapshot();
            var round = snapshot.Etag.Change;
            if (random.Next(2) == 0)
            {
                var count = 0;
                var cursor = snapshot.Cursor(TreeId.Kv);
                for (; cursor.MoveNext(); count++)
                    AssertRound(round, cursor.Value);
                Assert.Equal(Keys, count);
            }
            else
            {
                for (var i = 0; i < 100; i++)
                {
                    Assert.True(snapshot.TryGet(TreeId.Kv, KeyOf(random.Next(Keys)), out var value));
                    AssertRound(round, value);
                }
            }
            reads++;
        }
        return reads;
    }

    private static void AssertRound(ulong round, ReadOnlySpan<byte> value) =>
        Assert.Equal(round, BinaryPrimitives.ReadUInt64LittleEndian(value));

    private static byte[] KeyOf(int key) => System.Text.Encoding.ASCII.GetBytes($"files/usr/share/{key:d6}");
}
