using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>
/// Counts and removals of ranges by the summaries in branches: what they read. That they are right: the tests that compare a store with a model
/// (<see cref="ModelState.CheckCounts(ReadSnapshot, Random, int)"/>).
/// </summary>
public sealed unsafe class RangeCountTests : IDisposable
{
    // Two levels of branches.
    private const int Keys = 60_000;
    private static readonly PageStoreOptions Options = new() { MapBytes = 1 << 28 };
    private readonly SimulatedDisk _disk = new();
    private readonly HashSet<long> _read = [];

    public void Dispose() => _disk.Dispose();

    /// <summary>A page that is read for the first time is read by a call.</summary>
    [Theory]
    [InlineData(1, 59_999, 6)]
    [InlineData(10_000, 50_000, 6)]
    [InlineData(0, 30_000, 3)]
    [InlineData(30_000, Keys, 3)]
    [InlineData(30_000, 30_001, 4)]
    [InlineData(0, Keys, 0)]
    public void Count_OfAFile_ReadsOnlyTheEdges(int from, int to, int pagesMax)
    {
        using var store = Filled();
        using var snapshot = store.Roots.OpenSnapshot();
        _read.Clear();
        Assert.Equal((ulong)(to - from), snapshot.CountRange(TreeId.Kv, Bound(from), Bound(to)));
        Assert.InRange(_read.Count, 0, pagesMax);
        store.Apply(batch => Assert.Equal((ulong)(to - from), batch.CountRange(TreeId.Kv, Bound(from), Bound(to))));
        Assert.InRange(_read.Count, 0, pagesMax);
    }

    /// <summary>What was changed since the checkpoint is in memory. Nothing is read but the edges, and the changes themselves.</summary>
    [Fact]
    public void Count_AfterChanges_CountsThemWithoutReadingMore()
    {
        using var store = Filled();
        store.Apply(batch =>
        {
            for (var key = 1_000; key < Keys; key += 500)
            {
                batch.Put(TreeId.Kv, [.. ByteKeys.Of(key), 1], new byte[100]);
                batch.Delete(TreeId.Kv, ByteKeys.Of(key + 1));
            }
            batch.Delete(TreeId.Kv, ByteKeys.Of(40_002));
        });
        _read.Clear();
        using var snapshot = store.Roots.OpenSnapshot();
        Assert.Equal(49_999ul, snapshot.CountRange(TreeId.Kv, Bound(5_100), Bound(55_100)));
        Assert.InRange(_read.Count, 0, 4);
    }

    /// <summary>Every leaf between the edges is unreadable. Their keys are removed, and counted, by what their branches say.</summary>
    [Fact]
    public void DeleteRange_OfLeavesInTheFile_ReadsNoneBetweenTheEdges()
    {
        using var store = Filled();
        var leaves = Leaves(store);
        foreach (var (page, first) in leaves)
        {
            if (first is > 10_200 and < 49_800)
                _disk.MakeUnreadable("data", page * Page.Bytes, Page.Bytes);
        }
        store.Apply(batch => Assert.Equal(40_000ul, batch.DeleteRange(TreeId.Kv, Bound(10_000), Bound(50_000))));
        // On each edge the leaf of the bound, and one beside it to which what is left may be added.
        Assert.InRange(_read.Count(leaves.ContainsKey), 2, 4);
        _disk.WriteAll("data", _disk.ReadAll("data"));
        CheckAfterwards(store, Keys - 40_000);
    }

    /// <summary>Nothing tells the height of a tree but a leaf.</summary>
    [Fact]
    public void DeleteRange_OfAWholeTreeInTheFile_ReadsOneLeaf()
    {
        using var store = Filled();
        var leaves = Leaves(store);
        store.Apply(batch => Assert.Equal((ulong)Keys, batch.DeleteRange(TreeId.Kv, default, default)));
        Assert.Equal(1, _read.Count(leaves.ContainsKey));
        CheckAfterwards(store, 0);
    }

    /// <summary>Leaves whose entries refer to runs are read, and only they. The runs go with them.</summary>
    [Fact]
    public void DeleteRange_OfLeavesSomeOfWhichReferToRuns_ReadsThese()
    {
        using var store = Filled(static key => key % 3_000 == 1_500 ? 20_000 : 100);
        var leaves = Leaves(store);
        store.Apply(batch => Assert.Equal(40_000ul, batch.DeleteRange(TreeId.Kv, Bound(10_000), Bound(50_000))));
        Assert.InRange(_read.Count(leaves.ContainsKey), 14 + 2, 14 + 4);
        CheckAfterwards(store, Keys - 40_000);
    }

    /// <summary>A part of a large set has no more to read than a range.</summary>
    [Fact]
    public void SetDelete_OfAPartInTheFile_ReadsNoLeafBeforeItsEnd()
    {
        using var store = Filled(change: batch =>
        {
            for (var member = 0; member < Keys; member++)
                batch.SetAdd("set"u8, [.. "member of the set "u8, .. ByteKeys.Of(member)], new Etag(1, 1));
        });
        var members = Leaves(store, isSet: true);
        Assert.True(members.Count > 50, $"The set has only {members.Count} leaves.");
        store.Apply(batch => Assert.Equal(50_000ul, batch.SetDelete("set"u8, [.. "member of the set "u8, .. ByteKeys.Of(50_000)], new Etag(1, 2))));
        Assert.InRange(_read.Count(members.ContainsKey), 1, 2);
        using (var snapshot = store.Roots.OpenSnapshot())
            Assert.True(snapshot.TryGetSet("set"u8, out var set) && set.Count == 10_000);
        CheckAfterwards(store, Keys);
    }

    /// <summary>A damaged summary is damage of its page, and not a number of keys.</summary>
    [Fact]
    public void Count_ByADamagedSummary_IsDamage()
    {
        using (Filled())
        {
        }
        fixed (byte* file = _disk.ReadAll("data"))
        {
            using var store = PageStore.Open(_disk, "data", Options);
            var top = file + store.Meta.Newest.Trees[(int)TreeId.Kv].Link.Reference.Value;
            _disk.FlipBit("data", (byte*)&TreePage.Subtree(top, 1)->Summary - file);
            using var snapshot = store.Roots.OpenSnapshot();
            Assert.Throws<CorruptStoreException>(() => snapshot.CountRange(TreeId.Kv, Bound(1), default));
        }
    }

    // Everything left is counted and found, and no page is lost.
    private static void CheckAfterwards(PageStore store, int keys)
    {
        store.Verify();
        for (var checkpoints = 0; checkpoints < 2; checkpoints++)
        {
            using (var snapshot = store.Roots.OpenSnapshot())
            {
                Assert.Equal(((ulong)keys, (ulong)keys), (snapshot.Count(TreeId.Kv), snapshot.CountRange(TreeId.Kv, [0], default)));
                using var cursor = snapshot.Cursor(TreeId.Kv);
                for (var left = keys; left > 0; left--)
                    Assert.True(cursor.MoveNext());
                Assert.False(cursor.MoveNext());
            }
            if (checkpoints == 0)
                store.CheckpointAll();
            store.Verify();
        }
    }

    /// <summary>The leaves of a tree in the file, each with the number of its first key or of the first one that is not less.</summary>
    private Dictionary<long, int> Leaves(PageStore store, bool isSet = false)
    {
        var leaves = new Dictionary<long, int>();
        var before = 0;
        fixed (byte* file = _disk.ReadAll("data"))
        {
            var root = store.Meta.Newest.Trees[(int)(isSet ? TreeId.Sets : TreeId.Kv)].Link.Reference;
            Collect(file, isSet ? TreePage.Reference(file + root.Value, 0)->Reference : root);
        }
        return leaves;

        void Collect(byte* file, PageRef reference)
        {
            var page = file + reference.Value;
            for (var child = 0; Page.Type(page) == PageType.Branch && child < Page.Count(page); child++)
                Collect(file, TreePage.Child(page, child)->Reference);
            if (Page.Type(page) != PageType.Leaf)
                return;
            leaves.Add(reference.Number, before);
            before += Page.Count(page);
        }
    }

    private static byte[] Bound(int key) => key is 0 or Keys ? [] : ByteKeys.Of(key);

    /// <summary>A store with a checkpoint, opened again, so that nothing of it was read. What is read then is noted.</summary>
    private PageStore Filled(Func<int, int>? bytesOf = null, Action<KvCluster.Storage.Trees.WriteBatch>? change = null)
    {
        using (var store = PageStore.Create(_disk, "data", Options, new byte[16]))
        {
            store.Apply(batch =>
            {
                for (var key = 0; key < Keys; key++)
                    batch.Put(TreeId.Kv, ByteKeys.Of(key), new byte[bytesOf?.Invoke(key) ?? 100]);
                change?.Invoke(batch);
            });
            store.CheckpointAll();
        }
        _disk.Fault = call =>
        {
            for (var page = call.Offset / Page.Bytes; call.Operation == "Read" && page * Page.Bytes < call.Offset + call.Bytes; page++)
                _read.Add(page);
            return DiskFault.None;
        };
        var opened = PageStore.Open(_disk, "data", Options);
        _read.Clear();
        return opened;
    }
}
