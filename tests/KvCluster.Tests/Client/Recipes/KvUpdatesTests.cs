using System.Text.Json;
using System.Text.Json.Serialization.Metadata;
using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>Updates of a value by what it is: none is lost and none is made twice, whatever happens between the read and the answer.</summary>
public sealed class KvUpdatesTests
{
    private static readonly JsonTypeInfo<Stock> Json = (JsonTypeInfo<Stock>)JsonSerializerOptions.Web.GetTypeInfo(typeof(Stock));

    [Fact]
    public async Task Updates_OfManyCallers_AreEachMadeOnce_WhileTheLeaderStops()
    {
        const int callers = 8;
        const int each = 30;
        await using var cluster = await NodeCluster.StartAsync(3);
        var leader = await cluster.LeaderOfAsync(0);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.AddressOf(1), cluster.AddressOf(2), cluster.AddressOf(3)], Timeout = Eventually.Limit });
        var made = 0;
        var updating = Task.WhenAll(Enumerable.Range(0, callers).Select(async _ =>
        {
            for (var update = 0; update < each; update++)
            {
                await client.UpdateAsync("count", static old => KvValue.FromInt64((old?.ToInt64() ?? 0) + 1));
                Interlocked.Increment(ref made);
            }
        }));
        await Eventually.TrueAsync(() => Volatile.Read(ref made) > callers || updating.IsCompleted, "updates are made");
        await cluster.StopNodeAsync(leader);
        await updating;
        Assert.Equal(callers * each, (await client.GetAsync("count")).Value.ToInt64());
    }

    [Fact]
    public async Task Update_WhoseAnswersAreLost_IsMadeOnce()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var calls = 0;
        var network = new HostileNetwork { LosesAnswer = method => method == Method.Put && Interlocked.Increment(ref calls) % 3 != 0 };
        await using var client = network.Client(cluster.AddressOf(1));
        for (var update = 0; update < 20; update++)
            await client.UpdateAsync("count", static old => KvValue.FromInt64((old?.ToInt64() ?? 0) + 1));
        Assert.Equal(20, (await client.GetAsync("count")).Value.ToInt64());
        Assert.True(calls > 20);
    }

    [Fact]
    public async Task Update_WithoutIdentity_WhoseAnswerIsLost_IsUnknown_AndNotMadeAgain()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var network = new HostileNetwork { LosesAnswer = static method => method == Method.Put };
        await using var client = network.Client(cluster.AddressOf(1), exactlyOnce: false);
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => client.UpdateAsync("count", static _ => KvValue.FromInt64(1)).AsTask());
        Assert.Equal(1, (await client.GetAsync("count")).Value.ToInt64());
    }

    /// <summary>As after a pause of the process between the read and the put.</summary>
    [Fact]
    public async Task Update_OfAKeyThatOthersChangeAndRemoveMeanwhile_BeginsWithWhatIsThere()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var other = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await other.PutAsync("k", "1");
        var puts = 0;
        var network = new HostileNetwork
        {
            Before = async method =>
            {
                if (method != Method.Put)
                    return;
                if (++puts == 1)
                    await other.PutAsync("k", "2");
                else if (puts == 2)
                    await other.DeleteAsync("k");
            },
        };
        await using var client = network.Client(cluster.AddressOf(1));
        List<string> seen = [];
        var updated = await client.UpdateAsync("k", old =>
        {
            seen.Add(old?.ToUtf8String() ?? "none");
            return "mine";
        });
        Assert.Equal(["1", "2", "none"], seen);
        var read = await client.GetAsync("k");
        Assert.Equal(("mine", read.Etag), (read.Value.ToUtf8String(), updated.Etag));
    }

    [Fact]
    public async Task Update_KeepsTheLifeOfItsKey_UnlessItIsTold()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var withLife = new KvGetOptions { WithLife = true };
        var session = await client.Sessions.OpenAsync("k", TimeSpan.FromHours(1));
        await client.PutAsync("k", "1", new KvPutOptions { TimeToLive = TimeSpan.FromHours(1), Owner = session });
        await client.UpdateAsync("k", static _ => "2");
        var kept = await client.GetAsync("k", withLife);
        Assert.Equal(("2", true, (Etag?)session.Opened), (kept.Value.ToUtf8String(), kept.Life.Left > TimeSpan.Zero, kept.Life.Owner));
        await client.UpdateAsync("k", static _ => "3", new KvPutOptions());
        Assert.Equal(default, (await client.GetAsync("k", withLife)).Life);
    }

    [Fact]
    public async Task Update_ToNothing_RemovesTheKey_AndToTheSame_WritesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var put = await client.PutAsync("k", "1");
        var same = await client.UpdateAsync("k", static old => old);
        Assert.Equal((put.Etag, "1"), (same.Etag, same.Value.ToUtf8String()));
        Assert.Equal(put.Etag, (await client.GetAsync("k")).Etag);
        Assert.False((await client.UpdateAsync("k", static _ => null)).Found);
        Assert.False((await client.GetAsync("k")).Found);
        Assert.False((await client.UpdateAsync("k", static old => old)).Found);
        await Assert.ThrowsAsync<ArgumentException>(
            () => client.UpdateAsync("k", static _ => "1", new KvPutOptions { Condition = KvCondition.Absent() }).AsTask());
    }

    [Fact]
    public async Task Update_OfATable_ReadsAndWritesItsType()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var stock = new KvTable<Stock>(client, "stock/", Json);
        await stock.UpdateAsync("pears", static old => new Stock((old?.Count ?? 0) + 5));
        var updated = await client.UpdateAsync("stock/pears", static old => new Stock(old!.Count - 2), Json);
        Assert.Equal((true, 3), (updated.Found, updated.Value!.Count));
        Assert.Equal("""{"count":3}""", (await client.GetAsync("stock/pears")).Value.ToUtf8String());
    }

    private sealed record Stock(int Count);
}
