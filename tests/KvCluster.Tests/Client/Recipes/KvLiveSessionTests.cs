using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>Sessions that keep themselves alive: how long they live, and who learns when that they do not any more.</summary>
public sealed class KvLiveSessionTests
{
    private static readonly TimeSpan Hour = TimeSpan.FromHours(1);

    [Fact]
    public async Task Session_IsKeptAlive_AndEndedWithItsKeys()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(1), async lifetime =>
        {
            await using var session = await KvLiveSession.OpenAsync(client, "k", lifetime);
            await client.PutAsync("k", "v", new KvPutOptions { Owner = session.Session });
            await Task.Delay(2 * lifetime);
            var found = (await client.GetAsync("k")).Found;
            // Otherwise the machine has stalled for so long.
            if (session.IsLost)
                return false;
            Assert.True(found);
            await session.DisposeAsync();
            Assert.False((await client.GetAsync("k")).Found);
            Assert.True(session.IsLost);
            Assert.True(session.Lost.IsCancellationRequested);
            return true;
        });
    }

    [Fact]
    public async Task Session_OutlivesItsLeader()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.AddressOf(1), cluster.AddressOf(2), cluster.AddressOf(3)], Timeout = Eventually.Limit });
        var time = new ManualTime();
        await using var session = await KvLiveSession.OpenAsync(client, "k", Hour, time, CancellationToken.None);
        await cluster.StopNodeAsync(await cluster.LeaderOfAsync(0));
        time.Advance(Hour / 2);
        await Eventually.TrueAsync(() => session.TimeLeft > Hour * 0.9, "the session is renewed at the next leader");
        Assert.False(session.IsLost);
    }

    /// <summary>As when somebody ends it, or it ended while the process stood still and its clock, too.</summary>
    [Fact]
    public async Task Session_ThatHasEndedInTheCluster_IsLostWithTheNextRenewal()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var time = new ManualTime();
        await using var session = await KvLiveSession.OpenAsync(client, "k", Hour, time, CancellationToken.None);
        await client.Sessions.EndAsync(session.Session);
        Assert.False(session.IsLost);
        time.Advance(Hour / 2);
        await session.Lost.WaitAsync();
        Assert.Equal((true, TimeSpan.Zero), (session.IsLost, session.TimeLeft));
    }

    [Fact]
    public async Task Session_OfAProcessThatStoodStill_IsLostAtOnce_AndStaysSo()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var time = new ManualTime();
        await using var session = await KvLiveSession.OpenAsync(client, "k", Hour, time, CancellationToken.None);
        // The clock goes on before any timer runs.
        time.PerLook = Hour;
        Assert.True(session.IsLost);
        time.PerLook = TimeSpan.Zero;
        time.Advance(TimeSpan.FromMinutes(1));
        await session.Lost.WaitAsync();
        // The cluster knows it, because its own time was another one.
        Assert.True(await client.Sessions.KeepAliveAsync(session.Session) > TimeSpan.Zero);
        Assert.True(session.IsLost);
    }

    [Fact]
    public async Task Session_WhoseRenewalsAreNotAnswered_IsLostWhenItsTimeIsOver()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var (asked, never) = (new TaskCompletionSource(), new TaskCompletionSource());
        var network = new HostileNetwork
        {
            Before = method =>
            {
                if (method != Method.KeepAlive)
                    return Task.CompletedTask;
                asked.TrySetResult();
                return never.Task;
            },
        };
        await using var client = network.Client(cluster.AddressOf(1));
        var time = new ManualTime();
        await using var session = await KvLiveSession.OpenAsync(client, "k", Hour, time, CancellationToken.None);
        time.Advance(Hour / 2);
        await asked.Task;
        Assert.False(session.IsLost);
        Assert.False(session.Lost.IsCancellationRequested);
        time.Advance(Hour / 2);
        Assert.True(session.IsLost);
        await session.Lost.WaitAsync();
        never.SetResult();
    }
}
