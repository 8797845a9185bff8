using System.Text.Json;
using System.Text.Json.Serialization.Metadata;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>
/// Changes on conditions that are expected to fail at times. An exception was the only answer, in the normal path of every loop of reading, changing and trying
/// again, and it did not say what the key has.
/// </summary>
public sealed class TryTests
{
    [Fact]
    public async Task TryPut_OnAConditionThatFails_SaysWhatTheKeyHas()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var made = await client.TryPutAsync("k", "1", KvCondition.Absent());
        Assert.True(made.Succeeded);
        Assert.Null(made.Failed);
        Assert.Equal("k", made.Result.Key.ToUtf8String());

        var refused = await client.TryPutAsync("k", "2", KvCondition.Absent());
        Assert.False(refused.Succeeded);
        Assert.Contains(" k ", Assert.Throws<InvalidOperationException>(() => refused.Result).Message, StringComparison.Ordinal);
        var failed = FailedOf(refused);
        Assert.Equal((0, "k", true), (failed.Index, failed.Key.ToUtf8String(), failed.Found));
        Assert.Equal(made.Result.Etag, failed.Etag);
        Assert.True(failed.Value.IsEmpty);

        var options = new KvPutOptions { Condition = KvCondition.Absent(), WithPresentValue = true };
        failed = FailedOf(await client.TryPutAsync("k", "2", options));
        Assert.Equal("1", failed.Value.ToUtf8String());
        Assert.True((await client.TryPutAsync("k", "2", KvCondition.EtagEquals(failed.Etag))).Succeeded);
        Assert.Equal("2", (await client.GetAsync("k")).Value.ToUtf8String());
    }

    [Fact]
    public async Task TryPut_OnAConditionOnAnotherKey_NamesThatKey()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var failed = FailedOf(await client.TryPutAsync("k", "1", KvCondition.Exists("other")));
        Assert.Equal(("other", false), (failed.Key.ToUtf8String(), failed.Found));
        Assert.False((await client.GetAsync("k")).Found);
    }

    [Fact]
    public async Task TryDelete_AndTryWrite_OnConditionsThatFail_ChangeNothing()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var put = await client.PutAsync("k", "1");
        Assert.Equal(put.Etag, FailedOf(await client.TryDeleteAsync("k", KvCondition.Absent())).Etag);
        var write = new KvWrite().If(KvCondition.ValueEquals("2", "k")).Put("other", "v");
        Assert.Equal(put.Etag, FailedOf(await client.TryWriteAsync(write)).Etag);
        Assert.Equal("1", FailedOf(await client.TryWriteAsync(write.WithPresentValue())).Value.ToUtf8String());
        Assert.False((await client.GetAsync("other")).Found);

        Assert.True((await client.TryWriteAsync(new KvWrite().If(KvCondition.Exists("k")).Put("other", "v"))).Succeeded);
        Assert.True((await client.TryDeleteAsync("k", KvCondition.EtagEquals(put.Etag))).Result.Existed);
    }

    /// <summary>The repetition would fail on the condition that the change itself has made untrue. It gets the answer to the first attempt.</summary>
    [Fact]
    public async Task TryPut_WhoseFirstAnswerIsLost_Succeeds()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var attempts = 0;
        cluster.Nodes[0].Script = call =>
        {
            if (Interlocked.Increment(ref attempts) > 1)
                return Task.FromResult<Reply?>(null);
            cluster.Nodes[0].Serve(call);
            cluster.Nodes[0].Abort();
            return Task.FromResult<Reply?>(FakeNode.Silence);
        };
        Assert.True((await client.TryPutAsync("k", "1", KvCondition.Absent())).Succeeded);
        Assert.Equal(1, cluster.Applied["k"]);
        Assert.True(attempts > 1);
    }

    [Fact]
    public async Task Try_ThatFailsForAnotherReason_Throws()
    {
        await using var cluster = await FakeCluster.StartAsync(1, "m");
        await using var client = cluster.Connect();
        await Assert.ThrowsAsync<KvInvalidRequestException>(() => client.TryPutAsync(default, "1", KvCondition.Absent()).AsTask());
        var write = new KvWrite().Put("a", "1").Put("z", "1");
        Assert.Equal("SHARDS_DIFFER", (await Assert.ThrowsAnyAsync<KvException>(() => client.TryWriteAsync(write).AsTask())).Reason);
        await Assert.ThrowsAsync<ArgumentNullException>(() => client.TryPutAsync("k", "1", null!).AsTask());
    }

    /// <summary>What the exception says of the read holds for the put, too, which was not made.</summary>
    [Fact]
    public async Task TryPut_WhoseKeyCannotBeReadAfterwards_ThrowsThatNothingWasApplied()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("k", "1");
        cluster.Nodes[0].Script = static call =>
            Task.FromResult(call.Method == Method.List ? FakeNode.Refuse(call, StatusCode.DataLoss, "CORRUPT") : null);
        var failure = await Assert.ThrowsAsync<KvException>(() => client.TryPutAsync("k", "2", KvCondition.Absent()).AsTask());
        Assert.Equal(("CORRUPT", ChangeOutcome.NotApplied), (failure.Reason, failure.Outcome));
    }

    [Fact]
    public async Task Try_AtARealNode_TellsOfEachConditionAndKindOfChange()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var put = await client.PutAsync("large", new byte[1 << 20]);
        var failed = FailedOf(await client.TryPutAsync("large", "small", KvCondition.Absent()));
        Assert.Equal((put.Etag, true), (failed.Etag, failed.Value.IsEmpty));
        var options = new KvPutOptions { Condition = KvCondition.Absent(), WithPresentValue = true, TimeToLive = TimeSpan.FromHours(1) };
        Assert.Equal(1 << 20, FailedOf(await client.TryPutAsync("large", "small", options)).Value.Length);

        var counted = await client.TryIncrementAsync("n", 5, KvCondition.Absent());
        Assert.Equal(5, counted.Result.Number);
        Assert.Equal(counted.Result.Position.Etag, FailedOf(await client.TryIncrementAsync("n", 5, KvCondition.Absent())).Etag);

        await client.Sets.AddAsync("set", ["m"]);
        var ofSet = FailedOf(await client.TryWriteAsync(
            new KvWrite().If(KvCondition.Exists("n")).If(KvCondition.SetLacks("set", "m")).Put("x", "1")));
        Assert.Equal((1, "set", false), (ofSet.Index, ofSet.Key.ToUtf8String(), ofSet.Found));
        var ofRange = FailedOf(await client.TryWriteAsync(new KvWrite().If(KvCondition.Range("n", "o", keys: 2)).Put("x", "1")));
        Assert.Equal((0, "n", false), (ofRange.Index, ofRange.Key.ToUtf8String(), ofRange.Found));

        var onlyRead = new KvWrite().If(KvCondition.Exists("n")).If(KvCondition.Exists("absent")).WithResults();
        onlyRead.Operations.Get("n");
        var ofRead = FailedOf(await client.TryWriteAsync(onlyRead));
        Assert.Equal((1, "absent", false), (ofRead.Index, ofRead.Key.ToUtf8String(), ofRead.Found));
        Assert.False((await client.GetAsync("x")).Found);
    }

    [Fact]
    public async Task Table_TriesByItsOwnKeys()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var type = (JsonTypeInfo<int>)JsonSerializerOptions.Web.GetTypeInfo(typeof(int));
        var table = new KvTable<int>(client, "t/", type);
        Assert.Equal("k", (await table.TryPutAsync("k", 7, KvCondition.Absent())).Result.Key.ToUtf8String());
        Assert.Equal("t/k", FailedOf(await table.TryPutAsync("k", 8, KvCondition.Absent())).Key.ToUtf8String());
        Assert.False((await client.TryPutAsync("t/k", 8, type, KvCondition.Absent())).Succeeded);
        Assert.False((await client.TryPutAsync("t/k", 8, JsonSerializerOptions.Web, KvCondition.Absent())).Succeeded);
        Assert.False((await table.TryDeleteAsync("k", KvCondition.Absent())).Succeeded);
        Assert.True((await table.TryDeleteAsync("k", KvCondition.Exists())).Result.Existed);
    }

    private static KvFailedCondition FailedOf<T>(KvTryResult<T> tried) => Assert.IsType<KvFailedCondition>(tried.Failed);
}
