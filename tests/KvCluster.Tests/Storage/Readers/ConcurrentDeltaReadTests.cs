using System.Buffers.Binary;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Readers;

/// <summary>Readers on other threads meet deltas (<see cref="DeltaPage"/>) beside a writer and a checkpoint thread, on a real disk.</summary>
public sealed class ConcurrentDeltaReadTests
{
    private const int Pairs = 3_000;

    /// <summary>
    /// Both keys of a pair always have the same value. Readers meet deltas whose bases are replaced meanwhile, and find neither another value nor damage.
    /// </summary>
    [Fact]
    public async Task Pairs_ReadWhileBasesAreReplaced_AreEqual()
    {
        using var directory = new TemporaryDirectory();
        var options = new PageStoreOptions { DeltaBytesMax = ScratchPool.BlockBytesMax };
        using var store = PageStore.Create(LocalDisk.Instance, Path.Combine(directory.Path, "data"), options, new byte[16]);
        store.Apply(batch => PutPairs(batch, Enumerable.Range(0, Pairs), 0));
        store.CheckpointAll();
        using var done = new CancellationTokenSource();
        var readers = Enumerable.Range(0, 3).Select(seed => Task.Run(() => ReadPairs(store, seed, done.Token))).ToArray();
        var random = new Random(1);
        for (var (round, checkpoints) = (1, 0); checkpoints < 12; round++)
        {
            store.Apply(batch => PutPairs(batch, Enumerable.Range(0, 40).Select(_ => random.Next(Pairs)), round));
            if (round % 20 != 0)
                continue;
            var checkpoint = store.BeginCheckpoint(static etag => new CheckpointPosition(etag, default, 0), Etag.MaxValue)!;
            var writing = Task.Run(checkpoint.Write);
            while (!writing.IsCompleted)
                store.Apply(batch => PutPairs(batch, Enumerable.Range(0, 20).Select(_ => random.Next(Pairs)), round));
            await writing;
            store.FinishCheckpoint(checkpoint);
            checkpoints++;
        }
        await done.CancelAsync();
        Assert.All(await Task.WhenAll(readers), static count => Assert.True(count > 0));
        store.Verify();

        static void PutPairs(WriteBatch batch, IEnumerable<int> pairs, int round)
        {
            Span<byte> value = stackalloc byte[100];
            BinaryPrimitives.WriteInt32LittleEndian(value, round);
            foreach (var pair in pairs)
            {
                batch.Put(TreeId.Kv, KeyOf(pair), value);
                batch.Put(TreeId.Kv, KeyOf(Pairs + pair), value);
            }
        }

        static long ReadPairs(PageStore store, int seed, CancellationToken done)
        {
            var random = new Random(seed);
            var reads = 0L;
            for (; !done.IsCancellationRequested || reads == 0; reads++)
            {
                using var snapshot = store.Roots.OpenSnapshot();
                for (var read = 0; read < 50; read++)
                {
                    var pair = random.Next(Pairs);
                    Assert.True(snapshot.TryGet(TreeId.Kv, KeyOf(pair), out var one) & snapshot.TryGet(TreeId.Kv, KeyOf(Pairs + pair), out var other));
                    Assert.True(one.SequenceEqual(other), $"The values of pair {pair} differ.");
                }
                if (reads % 50 != 0)
                    continue;
                var values = new Dictionary<int, int>();
                using var cursor = snapshot.Cursor(TreeId.Kv);
                for (var at = 0; cursor.MoveNext(); at++)
                {
                    var value = BinaryPrimitives.ReadInt32LittleEndian(cursor.Value);
                    if (at < Pairs)
                        values.Add(at, value);
                    else
                        Assert.Equal(values[at - Pairs], value);
                }
            }
            return reads;
        }
    }

    private static byte[] KeyOf(int number) => [(byte)(number >> 24), (byte)(number >> 16), (byte)(number >> 8), (byte)number];
}
