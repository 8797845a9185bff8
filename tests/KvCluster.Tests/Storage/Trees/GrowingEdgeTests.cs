using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>A leaf that is filled at its end stays full, and a new one begins behind it. That must not go on with keys which arrive in another order.</summary>
public sealed class GrowingEdgeTests
{
    private const int Keys = 3_000;
    private const int ValueBytes = 100;

    /// <summary>
    /// Each key belongs directly behind a full leaf and before the key that came last. If the full leaf still counted as growing, each of them would get a leaf
    /// of its own, because the separators between them are as short as those keys.
    /// </summary>
    [Fact]
    public void Put_KeysInFallingOrderBehindAFullLeaf_ShareLeaves()
    {
        var (before, firstOfLeaf) = PagesAndFirstOfALeaf(null);
        var (after, _) = PagesAndFirstOfALeaf(firstOfLeaf - 1);
        Assert.InRange(after - before, 1, 20);
    }

    /// <summary>
    /// Puts keys in order, so that each leaf is filled at its end, and others in falling order behind one of them. Returns the pages in use, and the first key
    /// of a leaf in the middle.
    /// </summary>
    private static unsafe (long Pages, int FirstOfLeaf) PagesAndFirstOfALeaf(int? behind)
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        store.Apply(batch =>
        {
            for (var key = 0; key < Keys; key++)
                batch.Put(TreeId.Kv, KeyOf(key, 0), new byte[ValueBytes]);
            for (var last = 255; last > 0 && behind is { } key; last--)
                batch.Put(TreeId.Kv, KeyOf(key, (byte)last), new byte[ValueBytes]);
        });
        store.CheckpointAll();
        store.Verify();
        fixed (byte* file = disk.ReadAll("data"))
        {
            var root = file + (store.Meta.Newest.Trees[(int)TreeId.Kv].Link.Reference.Number * Page.Bytes);
            Assert.True(Page.Type(root) == PageType.Branch && Page.Count(root) > 20, "The tree has too few leaves.");
            var leaf = file + (TreePage.Child(root, Page.Count(root) / 2)->Reference.Number * Page.Bytes);
            var first = new byte[4];
            Assert.Equal(first.Length, TreePage.CopyKey(leaf, 0, first));
            return (store.Free.UsedRuns().Sum(run => run.Count), (first[0] << 16) | (first[1] << 8) | first[2]);
        }
    }

    private static byte[] KeyOf(int key, byte last) => [(byte)(key >> 16), (byte)(key >> 8), (byte)key, last];
}
