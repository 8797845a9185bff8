using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>Damage to the data file is detected or harmless. It is never served.</summary>
public sealed class DamageTests
{
    private const string Path = "data";
    private const int PageBytes = 8192;

    /// <summary>Flips one bit in each page of the file in turn. Opening or reading fails, or everything read is correct.</summary>
    [Fact]
    public void FlippedBit_AnywhereInTheFile_IsFoundOrHarmless()
    {
        using var store = Filled(out var state);
        var image = Image(store);
        var (found, used) = (0, 0);
        var random = new Random(1);
        for (var page = 0; page < image.Length / PageBytes; page++)
        {
            var damaged = (byte[])image.Clone();
            damaged[(page * PageBytes) + random.Next(PageBytes)] ^= (byte)(1 << random.Next(8));
            if (image.AsSpan(page * PageBytes, PageBytes).ContainsAnyExcept((byte)0))
                used++;
            if (!ReadsWhole(store, damaged, state))
                found++;
        }
        Assert.True(found > used / 3, $"Only {found} of {used} damaged pages were found.");
    }

    /// <summary>The disk loses a write. The page's former content has a valid checksum of its own, but not the one that its parent expects.</summary>
    [Fact]
    public void LostWrite_OfAnyPage_IsFoundOrHarmless()
    {
        using var store = Filled(out _);
        var before = Image(store);
        store.Batch(batch =>
        {
            foreach (var key in batch[TreeId.Kv].Keys.ToArray())
                batch.Put(TreeId.Kv, key, [1, 2, 3, 4]);
        });
        store.Publish();
        store.Checkpoint();
        store.Checkpoint();
        var (after, state) = (Image(store), store.Published);
        var found = 0;
        for (var page = 2; page < Math.Min(before.Length, after.Length) / PageBytes; page++)
        {
            var damaged = (byte[])after.Clone();
            before.AsSpan(page * PageBytes, PageBytes).CopyTo(damaged.AsSpan(page * PageBytes));
            if (!ReadsWhole(store, damaged, state))
                found++;
        }
        for (var page = 2; page < (after.Length / PageBytes) - 1; page++)
        {
            var damaged = (byte[])after.Clone();
            after.AsSpan((page + 1) * PageBytes, PageBytes).CopyTo(damaged.AsSpan(page * PageBytes));
            if (!ReadsWhole(store, damaged, state))
                found++;
        }
        Assert.True(found > 5, $"Only {found} lost or misplaced writes were found.");
    }

    [Fact]
    public void Open_TruncatedFile_IsRefused()
    {
        using var store = Filled(out var state);
        var image = Image(store);
        foreach (var length in (int[])[0, 100, PageBytes, 2 * PageBytes, image.Length / 2])
        {
            store.Disk.WriteAll(Path, image.AsSpan(0, length));
            Assert.ThrowsAny<CorruptStoreException>(() => PageStore.Open(store.Disk, Path, store.Options));
        }
        Assert.True(ReadsWhole(store, image, state));
    }

    [Fact]
    public void Open_BothMetaPagesDamaged_IsRefused()
    {
        using var store = Filled(out _);
        var image = Image(store);
        image[1000] ^= 1;
        image[PageBytes + 1000] ^= 1;
        store.Disk.WriteAll(Path, image);
        Assert.ThrowsAny<CorruptStoreException>(() => PageStore.Open(store.Disk, Path, store.Options));
    }

    /// <summary>With one meta page damaged, the file opens with the other one and the state that it covers.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    public void Open_OneMetaPageDamaged_OpensTheOther(int damagedPage)
    {
        using var store = Filled(out var newer);
        var image = Image(store);
        image[(damagedPage * PageBytes) + 40] ^= 1;
        store.Disk.WriteAll(Path, image);
        using var opened = PageStore.Open(store.Disk, Path, store.Options);
        Assert.True(opened.Covered.Etag == newer.Etag || opened.Covered.Etag == newer.Etag.Predecessor, $"The opened file covers {opened.Covered.Etag}.");
        opened.Verify();
        using var snapshot = opened.Roots.OpenSnapshot();
        if (snapshot.Etag == newer.Etag)
            newer.CheckAll(snapshot);
    }

    private static ModelStore Filled(out ModelState state)
    {
        var random = new Random(3);
        var store = new ModelStore();
        for (var round = 0; round < 2; round++)
        {
            store.Batch(batch =>
            {
                for (var i = 0; i < 300; i++)
                {
                    var profile = KeyProfile.All[i % 40 == 0 ? 4 : 2];
                    batch.Put(ModelStore.Trees[i % 2], profile.Key(random), profile.Value(random));
                }
            });
            store.Publish();
            store.Checkpoint();
        }
        state = store.Published;
        return store;
    }

    private static byte[] Image(ModelStore store) => store.Disk.ReadAll(Path);

    private static bool ReadsWhole(ModelStore store, byte[] image, ModelState state)
    {
        store.Disk.WriteAll(Path, image);
        try
        {
            using var opened = PageStore.Open(store.Disk, Path, store.Options);
            // The older meta page may have been used in place of a damaged newer one. Recovery then replays more of the journal.
            if (opened.Covered.Etag != state.Etag)
                return false;
            using var snapshot = opened.Roots.OpenSnapshot();
            state.CheckAll(snapshot);
            return true;
        }
        catch (CorruptStoreException)
        {
            return false;
        }
    }
}
