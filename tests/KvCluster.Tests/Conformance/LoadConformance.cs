using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Loads of many keys.</summary>
public abstract class LoadConformance(ConformanceStore store)
{
    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Entries_AreAllThere_WhenTheLoadIsFlushed()
    {
        const long Entries = 2_500;
        await using var load = Client.BulkLoad();
        for (var number = 0; number < Entries; number++)
            await load.AddAsync($"{_prefix}{number:D5}", $"{number}");
        await load.AddAsync($"{_prefix}00007", "again");
        await load.AddAsync("z" + _prefix, "far");
        await load.FlushAsync();
        Assert.Equal((Entries + 2, Entries + 2), (load.Acknowledged, load.AcknowledgedThrough));
        Assert.Equal(Entries, await Client.CountAsync(_prefix));
        Assert.Equal("again", (await Client.GetAsync(_prefix + "00007")).Value.ToUtf8String());
        Assert.True((await Client.GetAsync("z" + _prefix)).Found);
    }

    [Fact]
    public async Task Entry_BeyondTheLimits_IsRefused_AndTheLoadGoesOn()
    {
        await using (var load = Client.BulkLoad())
        {
            await Assert.ThrowsAsync<KvInvalidRequestException>(async () => await load.AddAsync(default, "v"));
            await load.AddAsync(_prefix + "a", "v");
        }
        Assert.True((await Client.GetAsync(_prefix + "a")).Found);
    }

    [Fact]
    public async Task Load_ThatWasStopped_TakesNoMore()
    {
        var load = Client.BulkLoad();
        await load.AddAsync(_prefix + "a", "v");
        await load.StopAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(async () => await load.AddAsync(_prefix + "b", "v"));
        await load.DisposeAsync();
        Assert.Equal(load.Acknowledged, await Client.CountAsync(_prefix));
    }
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemoryLoadTests(InMemoryStoreUnderTest store) : LoadConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterLoadTests(ClusterUnderTest store) : LoadConformance(store);
