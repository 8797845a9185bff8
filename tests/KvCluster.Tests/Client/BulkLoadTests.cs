using System.Globalization;
using System.Text;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.V1;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>Loads of the library against nodes that serve a dictionary over several shards.</summary>
public sealed class BulkLoadTests(ITestOutputHelper output)
{
    private const int Entries = 20_000;

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Load_InAnyOrder_WritesEachEntryOnce_AndTheLastOfAKeyCounts(bool isSorted)
    {
        var random = Seeds.Next(output);
        await using var cluster = await FakeCluster.StartAsync(3, "00003000", "00007000");
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        var keys = Enumerable.Range(0, Entries).Select(_ => random.Next(10_000)).ToArray();
        if (isSorted)
            Array.Sort(keys);
        for (var entry = 0; entry < keys.Length; entry++)
            await load.AddAsync(Key(keys[entry]), Utf8($"{entry}"));
        await load.FlushAsync();
        Assert.Equal((Entries, Entries), (load.Acknowledged, load.AcknowledgedThrough));
        foreach (var group in keys.Index().GroupBy(static key => key.Item, static key => key.Index))
        {
            Assert.Equal($"{group.Max()}", cluster.Get(Key(group.Key)).Value.ToStringUtf8());
            Assert.Equal(group.Count(), cluster.Applied[Encoding.UTF8.GetString(Key(group.Key))]);
        }
    }

    /// <summary>A few entries of a shard that got no more held back the place where a load goes on to its very end.</summary>
    [Fact]
    public async Task Load_WithAFewEntriesOfAnotherShard_DoesNotWaitForMoreOfThem()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "00000010");
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        for (var entry = 0; entry < 100_000; entry++)
            await load.AddAsync(Key(entry), Utf8("v"));
        await load.SettleAsync();
        Assert.InRange(load.AcknowledgedThrough, 90_000, 100_000);
    }

    [Fact]
    public async Task Load_WhileAShardIsDivided_WritesEverything()
    {
        await using var cluster = await FakeCluster.StartAsync(2);
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        for (var entry = 0; entry < 5_000; entry++)
        {
            if (entry == 2_500)
                cluster.Split(Encoding.UTF8.GetString(Key(2_200)), leader: 2);
            await load.AddAsync(Key(entry), Utf8($"{entry}"));
        }
        await load.FlushAsync();
        Assert.Equal(5_000, load.AcknowledgedThrough);
        Assert.All(Enumerable.Range(0, 5_000), entry => Assert.Equal($"{entry}", cluster.Get(Key(entry)).Value.ToStringUtf8()));
    }

    [Fact]
    public async Task Load_ThatIsRefused_TellsWhy_AndWhereToGoOn()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var node = cluster.Nodes[0];
        node.Script = call => Task.FromResult(call.Method == Method.Write && call.Request.Span.IndexOf(Key(3_500)) >= 0
            ? FakeNode.Refuse(call, StatusCode.ResourceExhausted, "DISK_FULL")
            : null);
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        var failure = await Assert.ThrowsAsync<KvException>(async () =>
        {
            for (var entry = 0; entry < 100_000; entry++)
                await load.AddAsync(Key(entry), Utf8("v"));
        });
        Assert.Equal("DISK_FULL", failure.Reason);
        await load.SettleAsync();
        // Batches of a thousand.
        Assert.Equal(3_000, load.AcknowledgedThrough);
        Assert.True(load.Acknowledged >= 3_000);
        Assert.Equal("DISK_FULL", (await Assert.ThrowsAsync<KvException>(() => load.FlushAsync())).Reason);
    }

    /// <summary>A batch whose wait for a place was cancelled was neither sent nor kept, and the next flush said that everything was acknowledged.</summary>
    [Fact]
    public async Task Entry_WhoseWaitWasCancelled_IsSentByALaterCall()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var held = new TaskCompletionSource<Reply?>(TaskCreationOptions.RunContinuationsAsynchronously);
        cluster.Nodes[0].Script = call => call.Method == Method.Write ? held.Task : Task.FromResult<Reply?>(null);
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        using var patience = new CancellationTokenSource();
        var added = 0;
        var adding = load.AddAsync(Key(added++), Utf8("v"), patience.Token).AsTask();
        // Until every place is taken and a batch waits for one.
        for (; adding.IsCompletedSuccessfully || added == 1; adding = load.AddAsync(Key(added++), Utf8("v"), patience.Token).AsTask())
            await adding;
        await patience.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => adding);
        held.SetResult(null);
        await load.FlushAsync();
        Assert.Equal((added, added), (load.Acknowledged, load.AcknowledgedThrough));
        Assert.All(Enumerable.Range(0, added), entry => Assert.True(cluster.Get(Key(entry)).Found));
    }

    [Fact]
    public async Task Entry_BeyondItsLimits_IsNotAdded_AndTheLoadGoesOn()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        await load.AddAsync(Key(1), Utf8("v"));
        foreach (var (key, value, reason) in ((byte[], byte[], string)[])[([], [], "KEY_EMPTY"), (new byte[2_049], [], "KEY_TOO_LONG"), (Key(2), new byte[(8 << 20) + 1], "VALUE_TOO_LARGE")])
            Assert.Equal(reason, (await Assert.ThrowsAsync<KvInvalidRequestException>(async () => await load.AddAsync(key, value))).Reason);
        await load.FlushAsync();
        Assert.Equal((1, 1), (load.Acknowledged, load.AcknowledgedThrough));
        await load.AddAsync(Key(3), Utf8("v"));
        await load.FlushAsync();
        Assert.Equal(2, load.AcknowledgedThrough);
    }

    [Fact]
    public async Task Load_WithoutAnAnswer_GivesUp_AndCanBeAbandoned()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(call.Method == Method.Write ? FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER") : null);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(100) });
        await using var load = client.BulkLoad(giveUpAfter: TimeSpan.FromMilliseconds(300));
        await load.AddAsync(Key(1), Utf8("v"));
        Assert.Equal("NO_LEADER", (await Assert.ThrowsAsync<KvUnavailableException>(() => load.FlushAsync().WaitAsync(Eventually.Limit))).Reason);
        Assert.Equal(0, load.AcknowledgedThrough);
        await using var abandoned = client.BulkLoad(giveUpAfter: TimeSpan.FromDays(1));
        await abandoned.AddAsync(Key(1), Utf8("v"));
        using var patience = new CancellationTokenSource(TimeSpan.FromMilliseconds(50));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => abandoned.FlushAsync(patience.Token));
        await abandoned.DisposeAsync().AsTask().WaitAsync(Eventually.Limit);
        Assert.Equal(0, abandoned.AcknowledgedThrough);
    }

    private static byte[] Key(int number) => Utf8(number.ToString("d8", CultureInfo.InvariantCulture));

    private static byte[] Utf8(string text) => Encoding.UTF8.GetBytes(text);
}
