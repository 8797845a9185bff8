using KvCluster.Client;
using KvCluster.Testing;

namespace KvCluster.Tests.Conformance;

/// <summary>
/// What the conformance tests run over: a client, and the time by which its keys live. There are two shards, of which the second begins at "m". Each test has
/// keys of its own, because all tests of a class use one store.
/// </summary>
public abstract class ConformanceStore
{
    private int _prefixes;

    public abstract IKvClient Client { get; }

    /// <summary>Lets keys and sessions grow older.</summary>
    public abstract Task PassAsync(TimeSpan time);

    /// <summary>A prefix of the first shard that no other test has.</summary>
    public string NewPrefix() => $"a/{Interlocked.Increment(ref _prefixes)}/";

    /// <summary>Two keys on both sides of the border of the shards, with no others beside them.</summary>
    public async Task<(string Low, string High)> ClearBorderAsync()
    {
        await Client.DeleteRangeAsync(new KvRange { Start = "l", End = "n" });
        return ("l/border", "m/border");
    }

    /// <summary>Waits until a key is gone.</summary>
    public Task GoneAsync(string key) => Eventually.TrueAsync(async () => !(await Client.GetAsync(key)).Found, $"{key} is gone");
}

/// <summary>The client in memory. Time passes when a test says so.</summary>
public sealed class InMemoryStoreUnderTest : ConformanceStore, IDisposable
{
    private readonly ManualTime _time = new();
    private readonly InMemoryKvClient _client;

    public InMemoryStoreUnderTest() => _client = new InMemoryKvClient(new InMemoryKvOptions { Time = _time, ShardBounds = ["m"] });

    public override IKvClient Client => _client;

    public override Task PassAsync(TimeSpan time)
    {
        _time.Advance(time);
        return Task.CompletedTask;
    }

    public void Dispose() => _client.Dispose();
}

/// <summary>A cluster in this process, and the client that programs use.</summary>
public sealed class ClusterUnderTest : ConformanceStore, IAsyncLifetime
{
    private KvTestCluster _cluster = null!;
    private KvClient _client = null!;

    public override IKvClient Client => _client;

    public async Task InitializeAsync()
    {
        _cluster = await KvTestCluster.StartAsync(new KvTestClusterOptions { ShardBounds = ["m"] });
        _client = _cluster.Connect(static options => options.Timeout = Eventually.Limit);
    }

    public async Task DisposeAsync()
    {
        await _client.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    public override Task PassAsync(TimeSpan time) => Task.Delay(time);
}

/// <summary>The classes whose tests run over one cluster, one after the other.</summary>
[CollectionDefinition(Name)]
public sealed class ClusterCollection : ICollectionFixture<ClusterUnderTest>
{
    public const string Name = "conformance over a cluster";
}
