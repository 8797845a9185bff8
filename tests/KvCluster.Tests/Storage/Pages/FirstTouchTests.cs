using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// A page of the file is read as a whole, in a way that can fail, and compared with its parent's checksum before anything in it is served: at its first access
/// since the open or since it was written, by whichever reader.
/// </summary>
public sealed class FirstTouchTests : IDisposable
{
    private const int Keys = 60;

    /// <summary>The keys whose values are in runs: every fourth.</summary>
    private const int LargeKeys = Keys / 4;

    private readonly SimulatedDisk _disk = new();
    private readonly PageStoreOptions _options = new() { MapBytes = 1 << 28 };
    private PageStore _store;

    public FirstTouchTests()
    {
        _store = PageStore.Create(_disk, "data", _options, new byte[16]);
        Write(1);
    }

    public void Dispose()
    {
        _store.Dispose();
        _disk.Dispose();
    }

    [Fact]
    public void Read_DamagedPage_FailsForEveryReaderAndNotOnlyForTheFirst()
    {
        var found = 0;
        foreach (var page in TreePages())
        {
            Reopen();
            _disk.FlipBit("data", (page * Page.Bytes) + 4_000);
            var (first, second) = (Unreadable(_store), Unreadable(_store));
            _disk.FlipBit("data", (page * Page.Bytes) + 4_000);
            Assert.Equal(first, second);
            found += first.Count;
        }
        // Some bytes of a page are neither key nor value, but its checksum covers them, too.
        Assert.True(found > Keys, $"Only {found} reads failed.");
    }

    /// <summary>
    /// Pages are read, freed, written anew for something else, and then damaged before the new content is read. Branches stay sound, because one bad root
    /// would hide what is below it, and leaves are damaged apart from runs for the same reason.
    /// </summary>
    [Theory]
    [InlineData(false, Keys / 2)]
    [InlineData(true, LargeKeys / 2)]
    public void Read_PageWrittenAnewAndDamaged_IsFound(bool isRun, int unreadableLeast)
    {
        var touched = new HashSet<long>();
        for (byte round = 2; round < 8; round++)
        {
            Assert.Empty(Unreadable(_store));
            touched.UnionWith(TreePages());
            Write(round);
        }
        var written = ValuePages(isRun).Where(touched.Contains).ToList();
        foreach (var page in written)
            _disk.FlipBit("data", (page * Page.Bytes) + 4_000);
        var unreadable = Unreadable(_store).Count;
        Assert.True(unreadable >= unreadableLeast, $"{written.Count} pages were written anew and are damaged, and only {unreadable} keys cannot be read.");
    }

    /// <summary>
    /// The disk has lost a write, so a place has the page that was there before: intact, with its own number and checksum, but not its parent's.
    /// </summary>
    [Fact]
    [Trait("Turn", "3")]
    public void Read_PageWhoseWriteWasLost_IsFound()
    {
        var former = new List<byte[]>();
        for (byte round = 2; round < 8; round++)
        {
            former.Add(_disk.ReadAll("data"));
            Write(round);
        }
        var (now, tried) = (_disk.ReadAll("data"), 0);
        foreach (var at in TreePages().Select(page => (int)page * Page.Bytes))
        {
            foreach (var before in former.Where(image => image.Length > at).Select(image => image[at..(at + Page.Bytes)]))
            {
                if (BitConverter.ToInt64(before, 8) * Page.Bytes != at || now.AsSpan(at, Page.Bytes).SequenceEqual(before))
                    continue;
                using var disk = _disk.Copy();
                disk.WriteAll("data", [.. now.AsSpan(0, at), .. before, .. now.AsSpan(at + Page.Bytes)]);
                using var store = PageStore.Open(disk, "data", _options);
                Assert.NotEmpty(Unreadable(store, value: 7));
                tried++;
            }
        }
        Assert.True(tried > 10, $"Only {tried} pages were there before.");
    }

    /// <summary>Wherever in a page or run the bad sector is, accessing it through the mapping would end the process.</summary>
    [Fact]
    public void Read_BadSectorAnywhereInAPageOrRun_IsDamage()
    {
        foreach (var page in TreePages())
        {
            using var disk = _disk.Copy();
            disk.MakeUnreadable("data", (page * Page.Bytes) + (page % 16 * 512), 1);
            using var store = PageStore.Open(disk, "data", _options);
            Assert.True(Unreadable(store).Count > 0, $"Page {page} cannot be read, and nothing says so.");
        }
    }

    /// <summary>Half of one leaf has left memory since it was checked. It alone is read and compared again, before its keys are served.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(Page.Bytes - 1)]
    public void Read_LeafPartOfWhichHasLeftMemory_IsComparedAgain(int part)
    {
        Assert.Empty(Unreadable(_store));
        var leaves = ValuePages(isRun: false);
        var evicted = (leaves[0] * Page.Bytes) + part;
        _disk.IsInMemory = offset => evicted < offset || evicted >= offset + Environment.SystemPageSize;
        foreach (var leaf in leaves)
            _disk.FlipBit("data", (leaf * Page.Bytes) + 4_000);
        Assert.Empty(Unreadable(_store));
        Assert.Equal(1, ForgetEvicted());
        Assert.InRange(Unreadable(_store).Count, 1, (Keys / leaves.Count) + 3);
    }

    /// <summary>Accessing the bad sector through the mapping would end the process, although the first page of the run is in memory.</summary>
    [Fact]
    public void Read_BadSectorInAPartOfALargeRunThatHasLeftMemory_IsDamage()
    {
        _store.Apply(batch => batch.Put(TreeId.Kv, BitConverter.GetBytes(0), new byte[1 << 20]));
        _store.CheckpointAll();
        Assert.Empty(Unreadable(_store));
        var run = ValuePages(isRun: true).Single(page => OverflowRun.PagesFor(1 << 20) == RunPagesAt(page)) * Page.Bytes;
        var bad = run + (500 << 10);
        _disk.MakeUnreadable("data", bad, 1);
        _disk.IsInMemory = static _ => true;
        Assert.Empty(Unreadable(_store));
        _disk.IsInMemory = offset => bad < offset || bad >= offset + Environment.SystemPageSize;
        Assert.Equal([0], Unreadable(_store));
    }

    private long ForgetEvicted()
    {
        var (next, forgotten, inMemory) = (0L, 0L, new byte[512]);
        do
            next = _store.Space.ForgetEvicted(next, inMemory, ref forgotten);
        while (next > 0);
        return forgotten;
    }

    private unsafe int RunPagesAt(long number)
    {
        fixed (byte* file = _disk.ReadAll("data"))
            return OverflowRun.PagesFor(Page.ValueLength(file + (number * Page.Bytes)));
    }

    /// <summary>The keys that cannot be read, each in a snapshot of its own. The others have the value that was written last, if that is given.</summary>
    private static List<int> Unreadable(PageStore store, byte? value = null)
    {
        var found = new List<int>();
        for (var key = 0; key < Keys; key++)
        {
            using var snapshot = store.Roots.OpenSnapshot();
            try
            {
                Assert.True(snapshot.TryGet(TreeId.Kv, BitConverter.GetBytes(key), out var stored));
                Assert.True(value is null || !stored.ContainsAnyExcept(value.Value), $"Key {key} has an older value.");
            }
            catch (CorruptStoreException)
            {
                found.Add(key);
            }
        }
        return found;
    }

    /// <summary>The pages that the newest checkpoint reaches, without meta pages and the free map.</summary>
    private HashSet<long> TreePages()
    {
        var file = _disk.ReadAll("data");
        var pages = _store.Free.UsedRuns().SelectMany(run => Enumerable.Range(0, (int)run.Count).Select(index => run.First + index)).Where(page => page > 1);
        return [.. pages.Except(_store.Free.MapPages().Select(map => map.Reference.Number))
            .Where(page => page != _store.Meta.Newest.FreeDirectory.Number && file.AsSpan((int)page * Page.Bytes, Page.Bytes).ContainsAnyExcept((byte)0))];
    }

    /// <summary>
    /// The leaves that the newest checkpoint reaches, or the first pages of its runs. A page inside of a run has no header, and not its own number.
    /// </summary>
    private unsafe List<long> ValuePages(bool isRun)
    {
        var found = new List<long>();
        fixed (byte* file = _disk.ReadAll("data"))
        {
            foreach (var number in TreePages())
            {
                var page = file + (number * Page.Bytes);
                if ((long)Page.Number(page) == number && Page.Type(page) == (isRun ? PageType.Overflow : PageType.Leaf))
                    found.Add(number);
            }
        }
        return found;
    }

    /// <summary>Values of one page and of several pages, in leaves and in runs, and a checkpoint of them.</summary>
    private void Write(byte value)
    {
        _store.Apply(batch =>
        {
            for (var key = 0; key < Keys; key++)
            {
                var bytes = new byte[key % 4 == 0 ? 30_000 : 1_000];
                bytes.AsSpan().Fill(value);
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), bytes);
            }
        });
        _store.CheckpointAll();
        while (_store.ReleaseSome())
        {
        }
    }

    private void Reopen()
    {
        _store.Dispose();
        _store = PageStore.Open(_disk, "data", _options);
    }
}
