using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The leaves of waiting requests are read before the writer gets to them: all at once, each once, only while the trees are not in memory, and as by a reader.</summary>
public sealed class PathPrefetchTests : IDisposable
{
    private const int Keys = 2_000;
    private const int KeysApart = 20;
    private readonly SimulatedDisk _disk = new();
    private readonly PageStoreOptions _options = new() { MapBytes = 1 << 28 };
    private readonly StepExecutor _executor = new();
    private readonly List<CorruptStoreException> _damage = [];
    private readonly List<long> _asked = [];
    private readonly PageStore _store;
    private readonly PathPrefetch _prefetch;

    public PathPrefetchTests()
    {
        using (var store = PageStore.Create(_disk, "data", _options, new byte[16]))
        {
            Write(store, 1);
        }
        _store = PageStore.Open(_disk, "data", _options);
        _store.Space.Damaged = _damage.Add;
        _prefetch = new PathPrefetch(_executor, _store, _store.Roots.OpenSnapshot);
    }

    public void Dispose()
    {
        _store.Dispose();
        _disk.Dispose();
    }

    [Fact]
    public void Add_TreesInMemory_LooksUpSamplesOnly()
    {
        var (lookups, requests) = (0, PathPrefetch.SampleEvery * 4);
        _disk.BeginsRead = (_, _) =>
        {
            lookups++;
            return false;
        };
        for (var request = 0; request < requests; request++)
            Add([request % Keys]);
        Assert.False(_prefetch.IsCold);
        // A sample may ask for a branch, too.
        Assert.InRange(lookups, requests / PathPrefetch.SampleEvery, 3 * requests / PathPrefetch.SampleEvery);
    }

    [Fact]
    public void Add_TreesNotInMemory_AsksForEachLeafOnceBeforeItWaitsForAny()
    {
        BecomeCold();
        var (keys, read) = (Enumerable.Range(1, 50).Select(static index => index * KeysApart).ToArray(), 0);
        _disk.Fault = call =>
        {
            read += call.Operation.Contains("Read", StringComparison.Ordinal) ? 1 : 0;
            return DiskFault.None;
        };
        _disk.BeginsRead = (offset, _) =>
        {
            Assert.Equal(0, read);
            _asked.Add(offset);
            return true;
        };
        Add(keys);
        _disk.Fault = null;
        Assert.Equal(keys.Length, _asked.Distinct().Count());
        Assert.Equal(keys.Length, _asked.Count);
        // What was asked for is read as at a first touch: nothing is left to be checked.
        _disk.BeginsRead = null;
        foreach (var offset in _asked)
            _disk.MakeUnreadable("data", offset, 1);
        using var snapshot = _store.Roots.OpenSnapshot();
        Assert.All(keys, key => Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(key), out _)));
    }

    [Fact]
    public void Add_AllKeysInMemoryAgain_EndsLookingUpAll()
    {
        BecomeCold();
        var lookups = 0;
        _disk.BeginsRead = (_, _) =>
        {
            lookups++;
            return false;
        };
        for (var request = 0; request < PathPrefetch.KeysUntilWarm; request++)
            Add([request % Keys]);
        Assert.False(_prefetch.IsCold);
        lookups = 0;
        for (var request = 0; request < PathPrefetch.SampleEvery / 2; request++)
            Add([request % Keys]);
        Assert.InRange(lookups, 0, 3);
    }

    /// <summary>
    /// While it waits for the disk, the writer changes every leaf, and checkpoints write their new content to the places that are free. The old ones are
    /// not, because the one who reads them is a reader like others.
    /// </summary>
    [Fact]
    public void Add_LeavesAreWrittenAnewMeanwhile_ReadsNoPageThatIsReused()
    {
        BecomeCold();
        var rounds = 0;
        _disk.BeginsRead = (_, _) =>
        {
            for (; rounds < 6; rounds++)
                Write(_store, (byte)(rounds + 2));
            return true;
        };
        Add([.. Enumerable.Range(1, 50).Select(static index => index * KeysApart)]);
        Assert.Equal(6, rounds);
        Assert.Empty(_damage);
        using (var snapshot = _store.Roots.OpenSnapshot())
        {
            for (var key = 0; key < Keys; key++)
            {
                Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(key), out var value));
                Assert.False(value.ContainsAnyExcept((byte)7));
            }
        }
        _store.Verify();
    }

    /// <summary>A bad sector is damage, which the store is told as by a reader, and not the end of the process.</summary>
    [Fact]
    public void Add_LeafThatCannotBeRead_IsDamage()
    {
        BecomeCold();
        _disk.BeginsRead = (offset, _) =>
        {
            _disk.MakeUnreadable("data", offset + 4_096, 1);
            return true;
        };
        Add([Keys / 2]);
        Assert.Single(_damage);
    }

    /// <summary>A sample of the requests finds its leaf on the disk. The levels of the tree are known then.</summary>
    private void BecomeCold()
    {
        _disk.BeginsRead = static (_, _) => true;
        for (var request = 0; request < PathPrefetch.SampleEvery; request++)
            Add([0]);
        Add([Keys - 1]);
        Add([Keys * 3 / 4]);
        Assert.True(_prefetch.IsCold);
        Assert.Empty(_damage);
    }

    private void Add(int[] keys)
    {
        var request = WriteRequest.Rent();
        foreach (var key in keys)
            request.Put(ByteKeys.Of(key), [1]);
        _prefetch.Add(request);
        request.Return();
        while (_executor.RunOne())
        {
        }
    }

    /// <summary>Writes all keys and a checkpoint of them, and frees what it may.</summary>
    private static void Write(PageStore store, byte value)
    {
        var content = new byte[1_000];
        content.AsSpan().Fill(value);
        store.Apply(batch =>
        {
            for (var key = 0; key < Keys; key++)
                batch.Put(TreeId.Kv, ByteKeys.Of(key), content);
        });
        store.CheckpointAll();
        for (var step = 0; step < 100 && store.ReleaseSome(); step++)
        {
        }
    }
}
