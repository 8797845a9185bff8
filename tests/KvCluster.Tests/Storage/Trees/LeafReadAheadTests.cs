using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>What a scan of a file that is not in memory asks the system to read ahead: pages that it will enter, each once, and nothing else.</summary>
public sealed class LeafReadAheadTests : IDisposable
{
    private const int Keys = 12_000;
    private const int ValueBytes = 1_500;
    private static readonly PageStoreOptions Options = new() { MapBytes = 1 << 28, DeltaBytesMax = 0 };
    private readonly SimulatedDisk _disk = new();

    public void Dispose() => _disk.Dispose();

    [Fact]
    public void Scan_OfAFileThatIsNotInMemory_AsksForEachLeafOnceAndInTime()
    {
        using var store = Filled();
        var pages = Pages(store);
        Assert.True(pages.Count > 2_000, $"There are only {pages.Count} pages.");
        var asked = Scan(store, (page, passed) =>
        {
            Assert.True(pages.TryGetValue(page, out var first), $"Page {page}, for which the scan asks, is not of the tree.");
            Assert.True(first >= passed, $"The scan is at key {passed} and asks for the page that begins with key {first}.");
        });
        Assert.Equal(asked.Distinct().Count(), asked.Count);
        Assert.True(asked.Count > pages.Count * 0.95, $"The scan asked for {asked.Count} of {pages.Count} pages.");
    }

    /// <summary>A system that reads ahead by itself is asked only for the beginning of what follows in the file.</summary>
    [Fact]
    public void Scan_OfLeavesThatFollowEachOther_LeavesThemToASystemThatReadsAhead()
    {
        using var store = Filled();
        _disk.ReadsAhead = true;
        var pages = Pages(store);
        Assert.InRange(Scan(store, (page, passed) => Assert.True(pages[page] >= passed)).Count, 1, pages.Count / 10);
    }

    /// <summary>
    /// The calls that make the system read ahead were made at a page's first touch only, and leaves that follow each other are left to the system. So a second
    /// scan, of leaves that had left memory since, met each 4 KiB of them in a page fault.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void SecondScan_OfLeavesThatHaveLeftMemory_ReadsThemByCalls(bool readsAhead)
    {
        using var store = Filled();
        _disk.ReadsAhead = readsAhead;
        var pages = Pages(store);
        var reads = new HashSet<long>();
        _disk.ReadsNext = offset => reads.Add(offset / Page.Bytes);
        Scan(store, static (_, _) => { });
        var first = reads.Count;
        reads.Clear();
        Scan(store, static (_, _) => { });
        // The scan learns what is in memory from its fourth leaf on.
        Assert.InRange(first, pages.Count * 0.99, pages.Count);
        Assert.InRange(reads.Count, pages.Count * 0.99, pages.Count);
        // In memory.
        reads.Clear();
        _disk.BeginsRead = static (_, _) => false;
        using var snapshot = store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
        {
        }
        Assert.Empty(reads);
    }

    /// <summary>The former place of a leaf that was changed since the checkpoint is not read.</summary>
    [Fact]
    public void Scan_WithLeavesChangedSinceTheCheckpoint_AsksOnlyForTheOthers()
    {
        using var store = Filled();
        var pages = Pages(store);
        Write(store, Enumerable.Range(0, Keys).Where(static key => key % 300 < 60));
        var asked = Scan(store, (page, _) => Assert.True(pages[page] % 300 >= 40, $"The leaf that begins with key {pages[page]} was changed."));
        Assert.Equal(asked.Distinct().Count(), asked.Count);
        Assert.True(asked.Count > pages.Count / 2, $"The scan asked for {asked.Count} of {pages.Count} pages.");
    }

    [Fact]
    public void Scan_OfAFileInMemory_AsksForLittle()
    {
        using var store = Filled();
        var calls = 0;
        _disk.BeginsRead = (_, _) =>
        {
            calls++;
            return false;
        };
        using var snapshot = store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
        {
        }
        Assert.InRange(calls, 1, Pages(store).Count / 20);
    }

    /// <summary>
    /// Scans all keys while nothing is in memory. Returns the pages that were asked for, in order, each checked with the number of keys passed by then.
    /// </summary>
    private List<long> Scan(PageStore store, Action<long, int> check)
    {
        var (asked, passed) = (new List<long>(), 0);
        _disk.BeginsRead = (offset, bytes) =>
        {
            for (var page = offset / Page.Bytes; page * Page.Bytes < offset + bytes; page++)
            {
                check(page, passed);
                asked.Add(page);
            }
            return true;
        };
        using var snapshot = store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
            passed++;
        Assert.Equal(Keys, passed);
        return asked;
    }

    /// <summary>The pages of the tree in the file, each with the number of keys before it.</summary>
    private unsafe Dictionary<long, int> Pages(PageStore store)
    {
        var pages = new Dictionary<long, int>();
        fixed (byte* file = _disk.ReadAll("data"))
        {
            var root = file + (store.Meta.Newest.Trees[(int)TreeId.Kv].Link.Reference.Number * Page.Bytes);
            Collect(file, root, pages);
        }
        return pages;
    }

    private static unsafe int Collect(byte* file, byte* page, Dictionary<long, int> pages, int before = 0)
    {
        pages.Add((long)Page.Number(page), before);
        if (Page.Type(page) == PageType.Leaf)
            return before + Page.Count(page);
        for (var child = 0; child < Page.Count(page); child++)
            before = Collect(file, file + (TreePage.Child(page, child)->Reference.Number * Page.Bytes), pages, before);
        return before;
    }

    /// <summary>A store with a checkpoint, opened again.</summary>
    private PageStore Filled()
    {
        using (var store = PageStore.Create(_disk, "data", Options, new byte[16]))
        {
            Write(store, Enumerable.Range(0, Keys));
            store.CheckpointAll();
        }
        return PageStore.Open(_disk, "data", Options);
    }

    private static void Write(PageStore store, IEnumerable<int> keys) => store.Apply(batch =>
    {
        foreach (var key in keys)
            batch.Put(TreeId.Kv, ByteKeys.Of(key), new byte[ValueBytes]);
    });
}
