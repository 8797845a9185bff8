using System.Text;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>Deletes of ranges: what is left, what is copied, and what becomes of the pages.</summary>
public sealed class RangeRemovalTests
{
    // Two levels of branches.
    private const int Keys = 60_000;

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfLarge), MemberType = typeof(KeyProfile))]
    [Trait("Turn", "4")]
    public void DeleteRange_OfAnySizeOfLargeEntries_LeavesTheOtherKeysAndAllPagesAccounted(string profile) =>
        DeleteRange_OfAnySize_LeavesTheOtherKeysAndAllPagesAccounted(profile);

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfSmall), MemberType = typeof(KeyProfile))]
    public void DeleteRange_OfAnySize_LeavesTheOtherKeysAndAllPagesAccounted(string profile) => Seeds.Run(2, random =>
    {
        var keys = KeyProfile.Of(profile);
        using var store = new ModelStore();
        for (var round = 0; round < 12; round++)
        {
            store.Batch(batch =>
            {
                for (var i = random.Next(600); i > 0; i--)
                    batch.Put(TreeId.Kv, keys.Key(random), keys.Value(random));
            });
            // Some ranges are in the file, some in pages of earlier batches, and some in pages of their own batch.
            if (random.Next(2) == 0)
                store.Publish();
            if (random.Next(2) == 0)
                store.Checkpoint();
            if (random.Next(3) == 0)
                store.OpenReader();
            store.Batch(batch =>
            {
                for (var i = random.Next(4); i >= 0; i--)
                    batch.DeleteSomeRange(TreeId.Kv, keys, random);
                if (random.Next(3) == 0)
                    batch.Put(TreeId.Kv, keys.Key(random), keys.Value(random));
            }, seal: random.Next(6) != 0);
            store.Publish();
            store.CheckPublished();
            store.Store.Verify();
        }
        while (store.Readers > 0)
            store.CloseReader(0);
        store.CheckEverywhere();
    });

    [Fact]
    public void DeleteRange_OfMostKeys_CopiesOnlyTheEdges()
    {
        using var store = Loaded();
        store.Batch(batch =>
        {
            batch.DeleteRange(TreeId.Kv, Key(7_777), Key(50_001));
            // The root, and a branch and a leaf on each side.
            Assert.InRange(batch.PagesMade, 1, 5);
        });
        store.Publish();
        store.CheckPublished();
        store.Checkpoint();
        store.Store.Verify();
        Assert.InRange(store.Store.CheckpointCounts.Pages, 1, 12);
    }

    [Fact]
    public void DeleteRange_WithNoKeyInIt_CopiesNothing()
    {
        using var store = Loaded();
        store.Batch(batch =>
        {
            foreach (var key in (int[])[0, 63, 64, 8_000, 30_000, Keys - 1])
                batch.DeleteRange(TreeId.Kv, [.. Key(key), 0], Key(key + 1));
            batch.DeleteRange(TreeId.Kv, Key(Keys), []);
            batch.DeleteRange(TreeId.Kv, [], Key(0));
            batch.DeleteRange(TreeId.Kv, Key(9), Key(9));
            batch.DeleteRange(TreeId.Kv, Key(9), Key(8));
            Assert.Equal(0, batch.PagesMade);
        });
    }

    [Fact]
    public void DeleteRange_OfAllButAFewKeys_LeavesOnePage()
    {
        foreach (var left in (int[])[0, 1, 30_000, Keys - 2])
        {
            using var store = Loaded();
            store.Batch(batch =>
            {
                batch.DeleteRange(TreeId.Kv, [], Key(left));
                batch.DeleteRange(TreeId.Kv, Key(left + 2), []);
                Assert.Equal(1, batch.PagesMade);
            });
            store.Publish();
            store.CheckPublished();
            store.Store.Verify();
        }
    }

    [Fact]
    public void DeleteRange_OfAWholeTree_LeavesNoPage()
    {
        using var store = Loaded();
        store.Batch(batch =>
        {
            batch.DeleteRange(TreeId.Kv, [], []);
            Assert.Equal(0, batch.PagesMade);
        });
        store.Publish();
        store.Store.Verify();
        store.Batch(batch => batch.Put(TreeId.Kv, Key(1), [1]));
        store.Publish();
        store.CheckPublished();
        store.Checkpoint();
        store.Checkpoint();
        store.Store.Verify();
    }

    /// <summary>Values of their own pages go with their keys, wherever they are, and their pages are used again.</summary>
    [Fact]
    public void DeleteRange_WithLargeValues_FreesTheirPages()
    {
        using var store = new ModelStore();
        var lengths = new List<long>();
        for (var round = 0; round < 6; round++)
        {
            store.Batch(batch =>
            {
                for (var key = 0; key < 300; key++)
                    batch.Put(TreeId.Kv, Key(key), new byte[20_000]);
            });
            store.Publish();
            if (round % 2 == 0)
                store.Checkpoint();
            store.Batch(batch => batch.DeleteRange(TreeId.Kv, Key(3), Key(297)));
            store.Publish();
            store.Store.Verify();
            store.CheckPublished();
            store.Checkpoint();
            lengths.Add(store.Store.FileBytes);
        }
        Assert.InRange(lengths[^1], 1, lengths[1] * 1.2);
        Assert.InRange(store.Store.ScratchBytes, 0, 1 << 20);
    }

    /// <summary>
    /// A removal takes the level of a tree's leaves from the first one. In a received file with leaves on several levels, it took cells of leaves for
    /// references to pages. Here the last leaf of a tree is replaced by another tree.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public unsafe void Verify_OfATreeWithLeavesOnSeveralLevels_FindsIt(bool isSet)
    {
        const int Each = 1_000;
        using var store = new DataFile();
        var batch = store.Pages.Begin();
        for (var key = 0; key < 2 * Each; key++)
        {
            batch.Put(key < Each ? TreeId.Kv : TreeId.Expiry, Key(key), new byte[20]);
            batch.SetAdd(key < Each ? "a"u8 : "b"u8, Key(key), new Etag(1, 1));
        }
        store.Pages.Roots.Seal(batch, new Etag(1, 1));
        store.Pages.Roots.Publish(new Etag(1, 1));
        store.Pages.Verify();
        fixed (TreeRoot* trees = store.Pages.Roots.Published.Trees)
        {
            var sets = trees[(int)TreeId.Sets].Link.Reference.Memory;
            PageLink* first = isSet ? TreePage.Reference(sets, 0) : &trees[(int)TreeId.Kv].Link,
                second = isSet ? TreePage.Reference(sets, 1) : &trees[(int)TreeId.Expiry].Link;
            var top = first->Reference.Memory;
            Assert.True(Page.Type(top) == PageType.Branch && Page.Type(second->Reference.Memory) == PageType.Branch, "The trees have a single leaf.");
            var last = TreePage.Child(top, Page.Count(top) - 1);
            var more = (ulong)(Each - Page.Count(last->Reference.Memory));
            *last = *second;
            fixed (byte* set = TreePage.Value(store.Pages.Space, sets, 0))
                *(isSet ? (ulong*)(set + 16) : &trees[(int)TreeId.Kv].Count) += more;
        }
        Assert.Contains("level", Assert.Throws<CorruptStoreException>(store.Pages.Verify).Message, StringComparison.Ordinal);
    }

    private static ModelStore Loaded()
    {
        var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var key = 0; key < Keys; key++)
                batch.Put(TreeId.Kv, Key(key), new byte[100]);
        });
        store.Publish();
        store.Checkpoint();
        return store;
    }

    private static byte[] Key(int number) => Encoding.ASCII.GetBytes($"key-{number:d8}");
}
