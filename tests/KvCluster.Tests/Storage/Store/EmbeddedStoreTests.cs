using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>What an embedded store keeps, which its public tests cannot see: FORMAT.md, "Embedded store".</summary>
public sealed class EmbeddedStoreTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    [Fact]
    public async Task Keys_AreThoseOfTheFormat()
    {
        await using (var store = KvStore.Open(_directory.Path))
        {
            await store.DropTreeAsync(await store.CreateTreeAsync("dropped"));
            await store.WriteAsync(new KvBatch().Put(await store.CreateTreeAsync("ab"), "k"u8, "v"u8).SetAdd(store.Tree("ab"), "s"u8, "m"u8));
        }
        using var engine = await OpenEngineAsync();
        Assert.Equal(["00000000=00000003", "000000006162=00000002", "000000026B=76", "0000000273+1"], Entries(engine));
    }

    [Fact]
    public async Task DropTree_WithManyKeys_RemovesThemAndNoOthers()
    {
        await using (var store = KvStore.Open(_directory.Path))
        {
            var (kept, dropped) = (await store.CreateTreeAsync("kept"), await store.CreateTreeAsync("dropped"));
            var batch = new KvBatch().Put(kept, "k"u8, "v"u8);
            for (var key = 0; key < 2_500; key++)
                batch.Put(dropped, BitConverter.GetBytes(key), new byte[100]);
            await store.WriteAsync(batch);
            batch = new KvBatch().SetAdd(kept, "s"u8, "m"u8);
            // Small sets before a large one and behind it, more than are removed together.
            for (var key = 0; key < 2_500; key++)
                batch.SetAdd(dropped, [(byte)(key >> 8), (byte)key], "m"u8).SetAdd(dropped, [5, 0], BitConverter.GetBytes(key));
            await store.WriteAsync(batch);
            await store.DropTreeAsync(dropped);
        }
        using var engine = await OpenEngineAsync();
        Assert.Equal(["00000000=00000003", "000000006B657074=00000001", "000000016B=76", "0000000173+1"], Entries(engine));
    }

    // Whoever wanted to hold the tree while a drop failed got no exception, although the tree was not held. It then released what it did not have.
    [Fact]
    public async Task HoldTree_WhileADropFails_EitherHoldsItOrThrows()
    {
        const int Holds = 300_000;
        await using var store = KvStore.Open(_directory.Path);
        var tree = await store.CreateTreeAsync("tree");
        var isDone = false;
        var drops = Task.Factory.StartNew(() =>
        {
            while (!Volatile.Read(ref isDone))
            {
                tree.BeginDrop();
                tree.CancelDrop();
            }
        }, CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default);
        try
        {
            for (var hold = 0; hold < Holds; hold++)
            {
                try
                {
                    tree.Hold();
                }
                catch (KvTreeNotFoundException)
                {
                    continue;
                }
                tree.Release();
            }
        }
        finally
        {
            Volatile.Write(ref isDone, true);
        }
        await drops;
    }

    /// <summary>A crash in the middle of dropping a tree leaves keys without a name.</summary>
    [Fact]
    public async Task Open_WithKeysOfNoTree_RemovesThemAndNoOthers()
    {
        await using (var store = KvStore.Open(_directory.Path))
        {
            await store.CreateTreeAsync("one");
            await store.WriteAsync(new KvBatch().Put(await store.CreateTreeAsync("two"), "k"u8, "v"u8).Put(store.Tree("one"), "k"u8, "v"u8));
        }
        List<string> before;
        using (var engine = await OpenEngineAsync())
        {
            before = Entries(engine);
            var request = WriteRequest.Rent();
            foreach (var number in (byte[])[3, 7, 255])
            {
                for (byte index = 0; index < 100; index++)
                    request.Put([0, 0, 0, number, index], new byte[500]);
            }
            // The last two numbers have sets only, one of them a large one.
            foreach (var number in (byte[])[3, 8, 254])
            {
                request.SetAdd([0, 0, 0, number, 1], "m"u8);
                for (var member = 0; member < 500; member++)
                    request.SetAdd([0, 0, 0, number, 2], BitConverter.GetBytes(member));
            }
            Assert.Equal(WriteOutcome.Applied, (await engine.TryWrite(request)!.Value).Outcome);
        }
        await KvStore.Open(_directory.Path).DisposeAsync();
        using (var engine = await OpenEngineAsync())
            Assert.Equal(before, Entries(engine));
    }

    [Fact]
    public async Task Open_OfAReplicaOfACluster_IsRefused()
    {
        (await OpenEngineAsync()).Dispose();
        var refused = Assert.Throws<KvStoreFormatException>(() => KvStore.Open(_directory.Path));
        Assert.Contains("belongs to replica", refused.Message, StringComparison.Ordinal);
    }

    /// <summary>A call that passed the check for disposal just before the disposal asked for its turn after it, and waited for ever.</summary>
    [Fact]
    public async Task Turns_AskedForWhileTheyEnd_AreRefused()
    {
        var turns = new Turns();
        var held = await turns.TakeAsync(CancellationToken.None);
        var before = turns.TakeAsync(CancellationToken.None);
        var end = turns.EndAsync();
        var late = turns.TakeAsync(CancellationToken.None);
        Assert.False(before.IsCompleted || end.IsCompleted || late.IsCompleted);
        held.Dispose();
        await end.WaitAsync(Eventually.Limit);
        foreach (var refused in (Task<Turns.Turn>[])[before, late, turns.TakeAsync(CancellationToken.None)])
            await Assert.ThrowsAsync<ObjectDisposedException>(() => refused.WaitAsync(Eventually.Limit));
    }

    private static List<string> Entries(StandaloneStore engine)
    {
        var entries = new List<string>();
        using var snapshot = engine.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
            entries.Add($"{Convert.ToHexString(cursor.Key)}={Convert.ToHexString(KvValue.Read(cursor.Value, out _))}");
        using var sets = snapshot.Cursor(TreeId.Sets);
        while (sets.MoveNext())
            entries.Add($"{Convert.ToHexString(sets.Key)}+{sets.Set.Count}");
        return entries;
    }

    /// <summary>The engine as a replica's. A request that changes nothing is answered when everything in the journal is visible.</summary>
    private async Task<StandaloneStore> OpenEngineAsync()
    {
        var engine = StandaloneStore.Open(
            LocalDisk.Instance, Path.Combine(_directory.Path, "store"), new StoreOptions(), TimeProvider.System, NullLogger.Instance);
        Assert.Equal(WriteOutcome.Applied, (await engine.TryWrite(WriteRequest.Rent())!.Value).Outcome);
        return engine;
    }
}
