using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>
/// Locks with a fencing etag: what is guarded by them is changed by one holder at a time, also when a holder pauses, an answer is lost, or the key ends.
/// </summary>
public sealed class KvLockTests
{
    private static readonly TimeSpan Hour = TimeSpan.FromHours(1);

    [Fact]
    public async Task ChangesUnderALock_AreEachMadeOnce_WhileTheLeaderStops()
    {
        const int holders = 6;
        await using var cluster = await NodeCluster.StartAsync(3);
        var leader = await cluster.LeaderOfAsync(0);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.AddressOf(1), cluster.AddressOf(2), cluster.AddressOf(3)], Timeout = Eventually.Limit });
        var made = 0;
        var etags = new List<Etag>();
        var working = Task.WhenAll(Enumerable.Range(0, holders).Select(async _ =>
        {
            for (var rounds = 0; rounds < 5;)
            {
                await using var held = await KvLock.AcquireAsync(client, "lock");
                var read = await client.GetAsync("count");
                var next = KvValue.FromInt64((read.Found ? read.Value.ToInt64() : 0) + 1);
                try
                {
                    await client.WriteAsync(new KvWrite().If(held.Held).Put("count", next));
                }
                catch (KvConditionFailedException)
                {
                    // The machine has stalled for longer than the lock lives.
                    continue;
                }
                // Nobody else has the lock before this one is released.
                lock (etags)
                    etags.Add(held.FencingEtag);
                rounds++;
                Interlocked.Increment(ref made);
            }
        }));
        await Eventually.TrueAsync(() => Volatile.Read(ref made) > 0 || working.IsCompleted, "changes are made");
        await cluster.StopNodeAsync(leader);
        await working;
        Assert.Equal(holders * 5, (await client.GetAsync("count")).Value.ToInt64());
        Assert.Equal(holders * 5, etags.Distinct().Count());
        Assert.False((await client.GetAsync("lock")).Found);
    }

    /// <summary>A process stood still for longer than the lock lives, and goes on in the middle of its work.</summary>
    [Fact]
    public async Task Holder_ThatStoodStill_IsRefusedWhatTheLockGuards_AndOnlyThat()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster);
        var time = new ManualTime();
        await using var former = await KvLock.AcquireAsync(
            client, "lock", new KvLockOptions { Lifetime = Hour }, TimeSpan.Zero, time, CancellationToken.None);
        Assert.NotNull(former);
        await client.WriteAsync(new KvWrite().If(former.Held).Put("guarded", "1"));
        // In the cluster its session ends. Its own clock goes on before any of its timers runs.
        await client.Sessions.EndAsync(former.Session.Session);
        await using var holder = await KvLock.AcquireAsync(client, "lock");
        time.PerLook = Hour;
        Assert.True(former.IsLost);
        time.PerLook = TimeSpan.Zero;

        await Assert.ThrowsAsync<KvConditionFailedException>(() => client.WriteAsync(new KvWrite().If(former.Held).Put("guarded", "2")).AsTask());
        await client.WriteAsync(new KvWrite().If(holder.Held).Put("guarded", "3"));
        Assert.Equal("3", (await client.GetAsync("guarded")).Value.ToUtf8String());
        Assert.True(holder.FencingEtag > former.FencingEtag);
        Assert.Equal((false, true), (await former.CheckAsync(), await holder.CheckAsync()));
        // Without the condition the lock protects nothing.
        await client.PutAsync("unguarded", "by the former holder");
        // It does not take the lock from the next holder when it releases its own.
        await former.DisposeAsync();
        Assert.True(await holder.CheckAsync());
    }

    [Fact]
    public async Task Lock_WhoseAnswersAreLost_IsAcquiredOnce()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var puts = 0;
        var network = new HostileNetwork { LosesAnswer = method => method == Method.Put && Interlocked.Increment(ref puts) % 3 != 0 };
        await using var client = network.Client(cluster.AddressOf(1));
        for (var round = 0; round < 5; round++)
        {
            await using var held = await KvLock.AcquireAsync(client, "lock");
            Assert.Equal((held.FencingEtag, true), ((await client.GetAsync("lock")).Etag, await held.CheckAsync()));
        }
        Assert.True(puts > 5);
    }

    [Fact]
    public async Task Lock_WhoseOutcomeIsUnknown_IsNotLeftBehind()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var network = new HostileNetwork { LosesAnswer = static method => method == Method.Put };
        await using var client = network.Client(cluster.AddressOf(1), exactlyOnce: false);
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => KvLock.AcquireAsync(client, "lock", new KvLockOptions { Lifetime = Hour }).AsTask());
        Assert.False((await client.GetAsync("lock")).Found);
    }

    [Fact]
    public async Task Lock_ThatIsHeld_IsNotAcquired_AndWhoWaitsGetsItWhenItIsReleased()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster);
        var held = await KvLock.AcquireAsync(client, "lock", new KvLockOptions { Lifetime = Hour, Holder = "first" });
        Assert.Equal("first", (await client.GetAsync("lock")).Value.ToUtf8String());
        Assert.Null(await KvLock.TryAcquireAsync(client, "lock"));
        Assert.Null(await KvLock.TryAcquireAsync(client, "lock", TimeSpan.FromMilliseconds(50)));
        using var stopped = new CancellationTokenSource();
        var cancelled = KvLock.AcquireAsync(client, "lock", cancellationToken: stopped.Token).AsTask();
        var waiting = KvLock.TryAcquireAsync(client, "lock", Eventually.Limit, new KvLockOptions { Holder = "second" }).AsTask();
        await stopped.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => cancelled);
        Assert.False(waiting.IsCompleted);
        await held.DisposeAsync();
        Assert.True(held.IsLost);
        await using var next = await waiting;
        Assert.NotNull(next);
        Assert.Equal("second", (await client.GetAsync("lock")).Value.ToUtf8String());
        Assert.True(next.FencingEtag > held.FencingEtag);
    }

    [Fact]
    public async Task Lock_OfAProcessThatDied_IsAcquiredAfterItsLifetime()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster);
        var session = await client.Sessions.OpenAsync("lock", TimeSpan.FromSeconds(1));
        var put = await client.PutAsync("lock", "dead", new KvPutOptions { Owner = session });
        await using var held = await KvLock.AcquireAsync(client, "lock");
        Assert.True(held.FencingEtag > put.Etag);
    }

    [Fact]
    public async Task Lock_WhoseKeyWasRemoved_IsFree_AndItsHolderIsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster);
        await using var former = await KvLock.AcquireAsync(client, "lock", new KvLockOptions { Lifetime = Hour });
        var waiting = KvLock.AcquireAsync(client, "lock").AsTask();
        await client.DeleteRangeAsync(new KvRange { Prefix = "lo" });
        await using var holder = await waiting;
        Assert.Equal((false, false, true), (former.IsLost, await former.CheckAsync(), await holder.CheckAsync()));
        await Assert.ThrowsAsync<KvConditionFailedException>(() => client.WriteAsync(new KvWrite().If(former.Held).Put("guarded", "1")).AsTask());
    }

    private static KvClient ClientOf(NodeCluster cluster) =>
        new(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
}
