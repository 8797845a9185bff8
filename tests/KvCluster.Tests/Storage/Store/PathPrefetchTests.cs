using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The leaves of waiting requests are read before the writer gets to them: all at once, each once, only while the trees are not in memory, and as by a reader.
/// </summary>
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
        _prefetch = new PathPrefetch(_executor, _store, _store.Roots.OpenSnapshot, NoFailure);
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

    /// <summary>A request that only reads a key, and one that deletes a range, asked for nothing, or for the first leaf only.</summary>
    [Fact]
    public void Add_KeysOfConditionsAndEndsOfRanges_AreAskedFor()
    {
        BecomeCold();
        Assert.Single(AskedBy(request => request.AddCondition(ByteKeys.Of(100), ConditionKind.Exists)));
        Assert.Equal(2, AskedBy(request => request.DeleteRange(ByteKeys.Of(300), ByteKeys.Of(500))).Count);
        // The leaf on the edge, and the branch whose leaves go without being read.
        Assert.InRange(AskedBy(request => request.DeleteRange(ByteKeys.Of(700), default)).Count, 1, 2);
        // The leaf of a condition and of a put is the same one.
        Assert.Single(AskedBy(request =>
        {
            request.AddCondition(ByteKeys.Of(900), ConditionKind.Exists);
            request.Put(ByteKeys.Of(900), [1]);
        }));
    }

    /// <summary>Of a set the leaf of its key is asked for, and then, in the tree of a large one, that of the member.</summary>
    [Fact]
    public void Add_MembersOfSets_AreAskedForBelowTheirKeys()
    {
        const int Sets = 400;
        const int Members = 600;
        using var disk = new SimulatedDisk();
        using (var filled = PageStore.Create(disk, "data", _options, new byte[16]))
        {
            filled.Apply(batch =>
            {
                for (var set = 0; set < Sets; set++)
                {
                    for (var member = 0; member < (set == 5 ? Members : 5); member++)
                        batch.SetAdd(ByteKeys.Of(set), [.. ByteKeys.Of(member), .. new byte[100]], new Etag(1, 1));
                }
            });
            filled.CheckpointAll();
        }
        using var store = PageStore.Open(disk, "data", _options);
        var prefetch = new PathPrefetch(_executor, store, store.Roots.OpenSnapshot, NoFailure);
        var inMemory = new HashSet<long>();
        disk.BeginsRead = (offset, _) => inMemory.Add(offset);
        // Each request finds another level of the trees in memory, and goes on below it.
        for (var request = 0; request < PathPrefetch.SampleEvery; request++)
            Submit(prefetch, one => one.SetAdd(ByteKeys.Of(5), [.. ByteKeys.Of(300), .. new byte[100]]));
        for (var again = 0; again < 5; again++)
            Submit(prefetch, one => one.SetRemove(ByteKeys.Of(5), [.. ByteKeys.Of(300), .. new byte[100]]));
        Assert.True(prefetch.IsCold);
        // Now nothing has to be read for it any more, not even its leaf in the large set.
        foreach (var block in Enumerable.Range(0, (int)(store.FileBytes / Page.Bytes)).Select(static page => (long)page * Page.Bytes)
            .Where(offset => !inMemory.Contains(offset)))
            disk.MakeUnreadable("data", block, 1);
        using var snapshot = store.Roots.OpenSnapshot();
        Assert.True(snapshot.TryGetSet(ByteKeys.Of(5), out var found));
        Assert.True(found.Contains([.. ByteKeys.Of(300), .. new byte[100]]));
        Assert.ThrowsAny<CorruptStoreException>(() => Contains(store, 5, 0));
    }

    /// <summary>
    /// Reading ahead made a value of each, to have its pages in memory. Whether compressed bytes give one is for the writer to find out, who wants it.
    /// </summary>
    [Theory]
    [InlineData(1_000)]
    [InlineData(30_000)]
    [InlineData(40_000)]
    public void Add_KeysWhoseValuesAreCompressed_ReadsTheirPagesAndDecompressesNothing(int valueBytes)
    {
        using var disk = new SimulatedDisk();
        using (var filled = PageStore.Create(disk, "data", _options with { CompressesValues = true }, new byte[16]))
        {
            filled.Apply(batch =>
            {
                var header = new byte[KvValue.HeaderBytesMax];
                var headerBytes = KvValue.WriteHeader(header, new Etag(1, 1), default);
                batch.Put(TreeId.Kv, ByteKeys.Of(1), header.AsSpan(0, headerBytes), CompressedValueTests.Text(1, valueBytes));
            });
            filled.CheckpointAll();
        }
        var file = disk.ReadAll("data");
        CompressedDamage.BreakBlock(file);
        disk.WriteAll("data", file);
        using var store = PageStore.Open(disk, "data", _options);
        store.Space.Damaged = _damage.Add;
        var prefetch = new PathPrefetch(_executor, store, store.Roots.OpenSnapshot, NoFailure);
        prefetch.BecomeCold();
        Submit(prefetch, static one => one.Touch(ByteKeys.Of(1), ttlMilliseconds: 1));
        Submit(prefetch, static one => one.Scan([], [], limit: 10, keysOnly: false));
        Assert.Empty(_damage);
        disk.MakeUnreadable("data", 2 * Page.Bytes, store.FileBytes - (2 * Page.Bytes));
        using var snapshot = store.Roots.OpenSnapshot();
        Assert.Contains(
            "whose compressed bytes do not give it", Assert.Throws<CorruptStoreException>(() => snapshot.TryGet(TreeId.Kv, ByteKeys.Of(1), out _)).Message,
            StringComparison.Ordinal);
    }

    /// <summary>A full queue refuses requests, whose callers try again. Each attempt asked the disk for their leaves.</summary>
    [Fact]
    public void TryAdd_QueueIsFull_AsksForNothing()
    {
        BecomeCold();
        var queue = new RequestQueue(
            countMax: 1, long.MaxValue, new MemoryAccount(long.MaxValue, TimeProvider.System), new StepExecutor(), new WorkAction(static () => { }), _prefetch);
        Assert.Single(AskedBy(queue, 100, isAccepted: true));
        Assert.Empty(AskedBy(queue, 300, isAccepted: false));
        Assert.True(queue.TryTake(out _));
        Assert.Single(AskedBy(queue, 300, isAccepted: true));
    }

    /// <summary>An exception that nobody expects ended the process, with all other stores of the node.</summary>
    [Fact]
    public void Execute_UnexpectedException_IsToldAndNotThrown()
    {
        var failures = new List<Exception>();
        var bug = new InvalidOperationException("A bug.");
        var prefetch = new PathPrefetch(_executor, _store, () => throw bug, failures.Add);
        for (var request = 0; request < PathPrefetch.SampleEvery; request++)
            Submit(prefetch, static one => one.Put(ByteKeys.Of(1), [1]));
        Assert.Equal([bug], failures);
    }

    private static bool Contains(PageStore store, int set, int member)
    {
        using var snapshot = store.Roots.OpenSnapshot();
        Assert.True(snapshot.TryGetSet(ByteKeys.Of(set), out var found));
        return found.Contains([.. ByteKeys.Of(member), .. new byte[100]]);
    }

    private HashSet<long> AskedBy(Action<WriteRequest> fill) => AskedWhile(() => Submit(_prefetch, fill));

    private HashSet<long> AskedBy(RequestQueue queue, int key, bool isAccepted) => AskedWhile(() =>
    {
        var request = WriteRequest.Rent();
        request.Put(ByteKeys.Of(key), [1]);
        Assert.Equal(isAccepted, queue.TryAdd(request));
        RunAll();
    });

    private HashSet<long> AskedWhile(Action action)
    {
        var asked = new HashSet<long>();
        _disk.BeginsRead = (offset, _) => asked.Add(offset);
        action();
        return asked;
    }

    private static void NoFailure(Exception failure) => Assert.Fail($"The store was failed: {failure}");

    private void RunAll()
    {
        while (_executor.RunOne())
        {
        }
    }

    private void Submit(PathPrefetch prefetch, Action<WriteRequest> fill)
    {
        var request = WriteRequest.Rent();
        fill(request);
        prefetch.Add(request);
        request.Return();
        RunAll();
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

    private void Add(int[] keys) => Submit(_prefetch, request =>
    {
        foreach (var key in keys)
            request.Put(ByteKeys.Of(key), [1]);
    });

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
