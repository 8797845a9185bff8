using System.Text.Json;
using System.Text.Json.Serialization.Metadata;
using KvCluster.Client;

namespace KvCluster.Tests.Client;

/// <summary>Values of a type, as JSON: of single keys, and of a table, whose keys have a prefix that its callers do not see.</summary>
public sealed class KvTableTests
{
    private static readonly JsonTypeInfo<Order> Json = (JsonTypeInfo<Order>)JsonSerializerOptions.Web.GetTypeInfo(typeof(Order));

    [Fact]
    public async Task Value_OfAType_IsStoredAsJson_AndIsReadBack()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var put = await client.PutAsync("order", new Order("pears", 2), Json, KvCondition.Absent());
        Assert.Equal("""{"what":"pears","count":2}""", (await client.GetAsync("order")).Value.ToUtf8String());
        var read = await client.GetAsync("order", Json, KvReadMode.Leader);
        Assert.Equal((true, new Order("pears", 2), put.Etag), (read.Found, read.Value, read.Etag));
        Assert.Equal(new Order("pears", 2), (await client.GetAsync<Order>("order", JsonSerializerOptions.Web)).Value);
        await client.PutAsync("order", new Order("apples", 3), JsonSerializerOptions.Web, KvCondition.EtagEquals(put.Etag));
        Assert.Equal(new Order("apples", 3), (await client.GetAsync("order", Json)).Value);
    }

    [Fact]
    public async Task Value_ThatIsAbsentOrNotJson_IsNoValueOfTheType()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var absent = await client.GetAsync("order", Json);
        Assert.Equal((false, (Order?)null), (absent.Found, absent.Value));
        await client.PutAsync("order", "two pears");
        await Assert.ThrowsAsync<JsonException>(() => client.GetAsync("order", Json).AsTask());
    }

    [Fact]
    public async Task Table_HasItsKeysWithoutThePrefix_AndNoOthers()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync(KvKey.Of("order"), "not of the table");
        await client.PutAsync(KvKey.Of("orders2", 2026, 1), "not of the table");
        var orders = new KvTable<Order>(client, KvKey.Of("orders"), Json);
        foreach (var month in (int[])[12, 1, 10])
        {
            var put = await orders.PutAsync(KvKey.Of(2026, month), new Order("pears", month));
            Assert.Equal(KvKey.Of(2026, month), put.Key);
        }
        Assert.Equal(KvKey.Of("orders", 2026, 10), orders.KeyOf(KvKey.Of(2026, 10)));
        Assert.Equal("""{"what":"pears","count":10}""", (await client.GetAsync(KvKey.Of("orders", 2026, 10))).Value.ToUtf8String());
        Assert.Equal(10, (await orders.GetAsync(KvKey.Of(2026, 10))).Value?.Count);
        var all = await orders.ScanAsync().ToListAsync();
        Assert.Equal([KvKey.Of(2026, 1), KvKey.Of(2026, 10), KvKey.Of(2026, 12)], all.Select(static entry => entry.Key));
        Assert.Equal([1, 10, 12], all.Select(static entry => entry.Value!.Count));
        var some = await orders.ScanAsync(new KvScan { Start = KvKey.Of(2026, 2), End = KvKey.Of(2026, 12), KeysOnly = true }).ToListAsync();
        Assert.Equal((KvKey.Of(2026, 10), (Order?)null), (Assert.Single(some).Key, some[0].Value));
        Assert.True((await orders.DeleteAsync(KvKey.Of(2026, 10), KvCondition.Exists())).Existed);
        Assert.False((await orders.GetAsync(KvKey.Of(2026, 10))).Found);
    }

    [Fact]
    public async Task Table_WithoutAPrefix_IsRefused()
    {
        await using var client = new KvClient("http://127.0.0.1:1");
        Assert.Throws<ArgumentException>(() => new KvTable<Order>(client, default, Json));
    }

    private sealed record Order(string What, int Count);
}
