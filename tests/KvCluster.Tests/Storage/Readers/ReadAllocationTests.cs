using System.Text;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Readers;

/// <summary>Opening a snapshot, reading single keys from it and counting ranges allocates nothing.</summary>
public sealed class ReadAllocationTests
{
    private const int Keys = 20_000;

    /// <summary>In a run as a whole. Of a value that is divided between its leaf and a run a reader gets a copy.</summary>
    private const int LargeValueBytes = 30_000;

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void PointReads_InPagesOfMemoryOrTheFile_AllocateNothing(bool isInFile)
    {
        using var store = new DataFile();
        var batch = store.Pages.Begin();
        for (var key = 0; key < Keys; key++)
        {
            batch.Put(TreeId.Kv, Key(key), new byte[key % 50 == 0 ? LargeValueBytes : 40]);
            batch.SetAdd(key % 2 == 0 ? "large"u8 : Key(key), Key(key), new Etag(1, 1));
        }
        store.Pages.Roots.Seal(batch, new Etag(1, 1));
        store.Pages.Roots.Publish(new Etag(1, 1));
        if (isInFile)
        {
            store.Checkpoint();
            store.Reopen();
        }
        var keys = Enumerable.Range(0, Keys + 100).Select(Key).ToArray();
        // The first time the code is compiled, and pages are verified.
        Assert.Equal((Keys, Keys), Read(store, keys));
        var read = (0, 0);
        Assert.InRange(Allocations.Of(() => read = Read(store, keys)), 0, Allocations.Context);
        Assert.Equal((Keys, Keys), read);
    }

    private static (int Found, int Members) Read(DataFile store, byte[][] keys)
    {
        var (found, members) = (0, 0);
        foreach (var key in keys)
        {
            using var snapshot = store.Pages.Roots.OpenSnapshot();
            if (snapshot.TryGet(TreeId.Kv, key, out var value) && value.Length is 40 or LargeValueBytes)
                found++;
            if (snapshot.TryGetSet("large"u8, out var large) && large.Contains(key))
                members++;
            if (snapshot.TryGetSet(key, out var small) && small.Contains(key))
                members++;
            if (snapshot.CountRange(TreeId.Kv, default, key) + snapshot.CountRange(TreeId.Kv, key, default) != Keys)
                found--;
        }
        return (found, members);
    }

    private static byte[] Key(int number) => Encoding.ASCII.GetBytes($"key-{number:d8}");
}
