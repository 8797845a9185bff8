using System.Text;
using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>Sorted runs, of which whole leaves are filled at once: behind the last key, between two keys, broken by all that breaks them.</summary>
public sealed class SortedRunTests
{
    private const int ValueBytes = 100;

    /// <summary>
    /// Runs of any length anywhere, beside other changes: with keys that are there already or come twice, with keys out of order, with values of all sizes in
    /// the middle, and over the places where prefixes end.
    /// </summary>
    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfSmall), MemberType = typeof(KeyProfile))]
    public void RandomRuns_MatchTheModel(string profile) => Seeds.Run(3, random =>
    {
        using var store = new ModelStore(new PageStoreOptions { MapBytes = 1L << 30, StepPages = 1 << random.Next(12) });
        var keys = KeyProfile.Of(profile);
        for (var step = 0; step < 60; step++)
        {
            store.Batch(batch => Change(batch, keys, random), seal: random.Next(12) > 0);
            if (random.Next(3) > 0)
                store.Publish();
            if (random.Next(6) == 0)
                store.Checkpoint();
            if (random.Next(10) == 0)
                store.Store.Verify();
        }
        store.Publish();
        store.CheckEverywhere();
    });

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfLarge), MemberType = typeof(KeyProfile))]
    [Trait("Turn", "1")]
    public void RandomRuns_MatchTheModel_WithLargeEntries(string profile) => RandomRuns_MatchTheModel(profile);

    /// <summary>A key of one length is a prefix of the next one, and zero bytes at its end look like the padding of heads.</summary>
    [Fact]
    public void Run_OfKeysOfEachLength_IsRead()
    {
        foreach (var prefix in (int[])[0, 1, 7, 8, 9, 40])
        {
            using var store = new ModelStore();
            var entries = new List<(byte[], byte[])>();
            for (var length = Math.Max(1, prefix); length <= 2_048; length = length < 64 ? length + 1 : length + 97)
            {
                entries.Add((new byte[length], new byte[length % 50]));
                entries.Add(([.. new byte[length], 1], new byte[length % 30]));
            }
            entries.Sort((one, other) => ByteKeys.Order.Compare(one.Item1, other.Item1));
            entries.RemoveAll(entry => entry.Item1.Length > 2_048);
            store.Batch(batch => batch.PutAll(TreeId.Kv, entries));
            store.Publish();
            store.CheckPublished();
            store.Store.Verify();
        }
    }

    /// <summary>66 entries of 120 bytes fill a leaf of 8 KiB, whatever the batches, and whether the run is behind all keys or between two of them.</summary>
    [Theory]
    [InlineData(true, 20_000)]
    [InlineData(true, 550)]
    [InlineData(true, 1)]
    [InlineData(false, 20_000)]
    [InlineData(false, 550)]
    public void Run_Anywhere_FillsItsLeaves(bool isBehindAll, int perBatch)
    {
        const int keys = 20_000;
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        var others = Enumerable.Range(0, 2_000).Select(number => Entry(number < 1_000 || isBehindAll ? number : number + 1_000_000)).ToArray();
        Put(store, others);
        var before = Leaves(store);
        foreach (var part in Enumerable.Range(0, keys).Select(number => Entry(number + 500_000)).Chunk(perBatch))
            Put(store, part);
        store.Verify();
        Assert.InRange(Leaves(store) - before, 1, (keys / 66) + 8);
    }

    private static void Change(ModelBatch batch, KeyProfile keys, Random random)
    {
        for (var runs = random.Next(1, 4); runs > 0; runs--)
        {
            var tree = random.Next(6) == 0 ? ModelStore.Trees[1] : TreeId.Kv;
            batch.PutAll(tree, Run(batch, tree, keys, random));
            for (var others = random.Next(20); others > 0; others--)
                ChangeOne(batch, tree, keys, random);
        }
        if (random.Next(8) == 0)
            batch.DeleteSomeRange(TreeId.Kv, keys, random);
    }

    private static void ChangeOne(ModelBatch batch, TreeId tree, KeyProfile keys, Random random)
    {
        var key = batch[tree].Count > 0 && random.Next(3) > 0 ? batch[tree].Keys.ElementAt(random.Next(batch[tree].Count)) : keys.Key(random);
        switch (random.Next(4))
        {
            case 0:
                batch.Put(tree, key, keys.Value(random));
                break;
            case 1:
                batch.Get(tree, key);
                break;
            default:
                batch.Delete(tree, key);
                break;
        }
    }

    /// <summary>Up to 400 entries in order, or almost: of the profile's keys, between two keys of the tree, or behind its last one.</summary>
    private static List<(byte[] Key, byte[] Value)> Run(ModelBatch batch, TreeId tree, KeyProfile keys, Random random)
    {
        var count = 1 + (int)Math.Pow(400, random.NextDouble());
        var existing = batch[tree];
        var before = existing.Count == 0 ? [] : random.Next(3) == 0 ? existing.Keys.Last() : existing.Keys.ElementAt(random.Next(existing.Count));
        var kind = random.Next(3);
        var run = new List<(byte[] Key, byte[] Value)>();
        for (var index = 0; index < count; index++)
        {
            byte[] key = kind == 0 ? keys.Key(random) : [.. before, (byte)(kind == 1 ? 0 : index / 50), .. Encoding.ASCII.GetBytes($"{index:d5}")];
            if (key.Length <= 2_048)
                run.Add((key, keys.Value(random)));
        }
        run.Sort((one, other) => ByteKeys.Order.Compare(one.Key, other.Key));
        if (run.Count == 0)
            run.Add((keys.Key(random), keys.Value(random)));
        for (var faults = random.Next(3) == 0 ? random.Next(4) : 0; faults > 0; faults--)
        {
            var (from, to) = (random.Next(run.Count), random.Next(run.Count));
            // A key that comes twice, and keys out of order.
            if (random.Next(2) == 0)
                run.Insert(from, (run[from].Key, keys.Value(random)));
            else
                (run[from], run[to]) = (run[to], run[from]);
        }
        return run;
    }

    private static void Put(PageStore store, (byte[], byte[])[] entries) => store.Apply(batch =>
    {
        var puts = new PutList(entries);
        batch.PutAll(TreeId.Kv, ref puts);
    });

    private static (byte[], byte[]) Entry(int number) => (Encoding.ASCII.GetBytes($"key-{number:d12}"), new byte[ValueBytes + 6]);

    private static unsafe int Leaves(PageStore store)
    {
        using var snapshot = store.Roots.OpenSnapshot();
        return Count(snapshot.Root.Trees[(int)TreeId.Kv].Link.Reference);

        int Count(PageRef reference)
        {
            var page = store.Space.Locate(reference);
            if (Page.Type(page) == PageType.Leaf)
                return 1;
            var leaves = 0;
            for (var child = 0; child < Page.Count(page); child++)
                leaves += Count(TreePage.Child(page, child)->Reference);
            return leaves;
        }
    }
}
