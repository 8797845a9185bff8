using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The engine in a process whose thread pool does nothing. Tests that use the pool could not run beside this one.</summary>
[Collection(AloneCollection.Name)]
public sealed class OccupiedThreadPoolTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    /// <summary>Continuations of callers run on the thread pool. What they wait for does not.</summary>
    [Fact]
    public void Write_WhileEveryThreadOfThePoolIsOccupied_BecomesDurableAndVisible()
    {
        using var store = StandaloneStore.Open(LocalDisk.Instance, Path.Combine(_directory.Path, "shard"), new StoreOptions(), TimeProvider.System, NullLogger.Instance);
        using var pool = new OccupiedPool();
        for (var turn = 0; turn < 20; turn++)
        {
            var key = StoreBench.Text($"key-{turn}");
            var request = WriteRequest.Rent();
            request.Put(key, key);
            Assert.NotNull(store.TryWrite(request));
            Assert.True(SpinWait.SpinUntil(() => Has(store, key), Eventually.Limit), $"Put {turn} is not visible.");
        }
        Assert.True(pool.IsFull, "The pool was not occupied for the whole time.");
    }

    private static bool Has(StandaloneStore store, byte[] key)
    {
        using var snapshot = store.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, key, out _);
    }
}
