using System.Globalization;
using System.Text;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The engine on its own threads and a real disk.</summary>
public sealed class StandaloneStoreTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    [Fact]
    public async Task Write_ManyCallersIncrementOneCounterByCondition_NoneIsLost()
    {
        const int CallerCount = 8, IncrementCount = 25;
        using (var store = Open())
        {
            await Task.WhenAll(Enumerable.Range(0, CallerCount).Select(_ => Task.Run(async () =>
            {
                for (var done = 0; done < IncrementCount;)
                    done += await TryIncrementAsync(store) ? 1 : 0;
            })));
            await store.Store.Checkpoints.RequestAsync();
            Assert.Equal(CallerCount * IncrementCount, Read(store).Value);
        }
        using (var store = Open())
            Assert.Equal(CallerCount * IncrementCount, Read(store).Value);
    }

    [Fact]
    public async Task Dispose_WithRequestsInProgress_AnswersThemAll()
    {
        var store = Open();
        var answers = Enumerable.Range(0, 200).Select(index => Task.Run(async () =>
        {
            var request = WriteRequest.Rent();
            request.Put(StoreBench.Text($"key-{index}"), new byte[1000]);
            return (await store.TryWrite(request)!.Value).Outcome;
        })).ToArray();
        store.Dispose();
        foreach (var outcome in await Task.WhenAll(answers))
            Assert.True(outcome is WriteOutcome.Applied or WriteOutcome.OutcomeUnknown or WriteOutcome.Stopped, $"{outcome}");
    }

    [Fact]
    public async Task CloseAsync_WithActiveReadersAndWriters_WaitsForTheReaders()
    {
        using var store = Open();
        var writes = Enumerable.Range(0, 50).Select(index =>
        {
            var request = WriteRequest.Rent();
            request.Put(StoreBench.Text($"key-{index}"), new byte[3000]);
            return store.TryWrite(request)!.Value.AsTask();
        }).ToArray();
        await writes[0];
        var snapshot = store.OpenSnapshot();
        var closed = store.Store.CloseAsync();
        foreach (var write in writes)
            Assert.True((await write).Outcome is WriteOutcome.Applied or WriteOutcome.OutcomeUnknown or WriteOutcome.Stopped);
        Assert.Throws<StoreStoppedException>(() => store.OpenSnapshot());
        Assert.True(snapshot.TryGet(TreeId.Kv, "key-0"u8, out var stored));
        Assert.Equal(3000, KvValue.Read(stored, out _).Length);
        Assert.False(closed.IsCompleted);
        snapshot.Dispose();
        await closed.WaitAsync(Eventually.Limit);
    }

    private static async Task<bool> TryIncrementAsync(StandaloneStore store)
    {
        var (value, etag) = Read(store);
        var request = WriteRequest.Rent();
        request.AddCondition("counter"u8, ConditionKind.EtagEquals, etag);
        request.Put("counter"u8, StoreBench.Text((value + 1).ToString(CultureInfo.InvariantCulture)));
        return (await store.TryWrite(request)!.Value).Outcome == WriteOutcome.Applied;
    }

    private static (int Value, Etag Etag) Read(StandaloneStore store)
    {
        using var snapshot = store.OpenSnapshot();
        if (!snapshot.TryGet(TreeId.Kv, "counter"u8, out var stored))
            return default;
        var value = int.Parse(Encoding.UTF8.GetString(KvValue.Read(stored, out var etag)), CultureInfo.InvariantCulture);
        return (value, etag);
    }

    private StandaloneStore Open() =>
        StandaloneStore.Open(LocalDisk.Instance, Path.Combine(_directory.Path, "shard"), new StoreOptions(), TimeProvider.System, NullLogger.Instance);
}
