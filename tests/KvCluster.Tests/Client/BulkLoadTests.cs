using System.Globalization;
using System.Runtime.CompilerServices;
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
        await load.StopAsync();
        Assert.InRange(load.AcknowledgedThrough, 90_000, 99_999);
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
        await load.StopAsync();
        // Batches of a thousand.
        Assert.Equal(3_000, load.AcknowledgedThrough);
        Assert.True(load.Acknowledged >= 3_000);
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
        foreach (var (key, value, reason) in ((byte[], byte[], string)[])[([], [], "KEY_EMPTY"),
            (new byte[2_049], [], "KEY_TOO_LONG"), (Key(2), new byte[(8 << 20) + 1], "VALUE_TOO_LARGE")])
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
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(
            call.Method == Method.Write ? FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER") : null);
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(100), async time =>
        {
            await using var hurried = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            await using var load = hurried.BulkLoad(giveUpAfter: 3 * time);
            await load.AddAsync(Key(1), Utf8("v"));
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => load.FlushAsync());
            Assert.Equal(0, load.AcknowledgedThrough);
            // Otherwise the time was over before the first answer, or before the answer to a later attempt.
            return failure is KvUnavailableException { Reason: "NO_LEADER" };
        });
        await using var client = cluster.Connect();
        await using var abandoned = client.BulkLoad(giveUpAfter: TimeSpan.FromDays(1));
        await abandoned.AddAsync(Key(1), Utf8("v"));
        using var patience = new CancellationTokenSource(TimeSpan.FromMilliseconds(50));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => abandoned.FlushAsync(patience.Token));
        await abandoned.DisposeAsync().AsTask().WaitAsync(Eventually.Limit);
        Assert.Equal(0, abandoned.AcknowledgedThrough);
    }

    /// <summary>
    /// A batch was applied and its answer was lost for longer than a call may take. Another client changed the key and was answered, and the load sent the
    /// batch again under a new identity, so that the acknowledged value was gone.
    /// </summary>
    [Fact]
    public async Task Batch_WhoseAnswerWasLost_DoesNotOverwriteWhatAnotherClientWroteSince()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var answersAreLost = LoseAnswersOfWrites(cluster);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = CallTime });
        await using var load = client.BulkLoad(giveUpAfter: Eventually.Limit);
        await load.AddAsync(Key(1), Utf8("load"));
        var flushed = load.FlushAsync();
        await Eventually.TrueAsync(() => cluster.Get(Key(1)).Found, "the batch is applied");
        await using var other = cluster.Connect();
        await other.PutAsync(Key(1), Utf8("other"));
        await Eventually.TrueAsync(() => WritesOf(cluster) > 2, "the batch is sent again by later calls");
        answersAreLost.Value = false;
        await flushed;
        Assert.Equal("other", cluster.Get(Key(1)).Value.ToStringUtf8());
        Assert.Equal((1, 1), (load.Acknowledged, load.AcknowledgedThrough));
    }

    /// <summary>The shard does not know any more whether it has applied the batch, so nobody does, and it is not sent in another session.</summary>
    [Theory]
    [InlineData("session")]
    [InlineData("range")]
    public async Task Batch_WhoseAnswerWasLost_AndWhoseShardForgotIt_HasAnUnknownOutcome(string forgets)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var answersAreLost = LoseAnswersOfWrites(cluster);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = CallTime });
        await using var load = client.BulkLoad(giveUpAfter: Eventually.Limit);
        await load.AddAsync(Key(1), Utf8("load"));
        await load.AddAsync(Key(2), Utf8("load"));
        var flushed = load.FlushAsync();
        await Eventually.TrueAsync(() => cluster.Get(Key(1)).Found, "the batch is applied");
        await Eventually.TrueAsync(() => WritesOf(cluster) > 1, "the batch is sent again by a later call");
        await using var other = cluster.Connect();
        await other.PutAsync(Key(1), Utf8("other"));
        if (forgets == "session")
            cluster.Results.Clear();
        else
            cluster.Split(Encoding.UTF8.GetString(Key(2)), leader: 1);
        answersAreLost.Value = false;
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => flushed.WaitAsync(Eventually.Limit));
        Assert.Equal("other", cluster.Get(Key(1)).Value.ToStringUtf8());
        Assert.Equal(0, load.AcknowledgedThrough);
    }

    [Fact]
    public async Task Batch_OfAnEndedSession_WithoutAnEarlierAttempt_IsWrittenInANewSession()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        cluster.Results.Clear();
        await using var load = client.BulkLoad();
        await load.AddAsync(Key(1), Utf8("load"));
        await load.FlushAsync();
        Assert.Equal(1, cluster.Applied[Encoding.UTF8.GetString(Key(1))]);
    }

    [Fact]
    public async Task Batch_WithoutIdentities_WhoseAnswerWasLost_HasAnUnknownOutcome_AndIsNotRepeated()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        LoseAnswersOfWrites(cluster);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = CallTime, ExactlyOnce = false });
        await using var load = client.BulkLoad(giveUpAfter: Eventually.Limit);
        await load.AddAsync(Key(1), Utf8("load"));
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => load.FlushAsync().WaitAsync(Eventually.Limit));
        // The node may take the call from its stream only when the time of the caller is over.
        await Eventually.TrueAsync(() => WritesOf(cluster) > 0, "the write is at the node");
        Assert.Equal(1, WritesOf(cluster));
    }

    [Fact]
    public async Task SessionRead_AfterALoad_NamesThePositionOfItsBatches()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect(KvReadMode.Session);
        await using var load = client.BulkLoad();
        await load.AddAsync(Key(1), Utf8("load"));
        await load.FlushAsync();
        var written = cluster.Get(Key(1));
        await client.GetAsync(Key(1));
        Assert.Equal(written.Etag, Assert.Single(GetRequest.Parser.ParseFrom(cluster.Nodes[0].Calls.Last().Request).Read.Seen).Etag);
    }

    /// <summary>Of 12,345 entries 12,000 were stored, and nobody was told.</summary>
    [Fact]
    public async Task Disposal_WithoutAFlush_SendsWhatWasAdded()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "00003000");
        await using var client = cluster.Connect();
        KvBulkLoad load;
        await using (load = client.BulkLoad())
        {
            for (var entry = 0; entry < 12_345; entry++)
                await load.AddAsync(Key(entry), Utf8("v"));
            await Assert.ThrowsAsync<KvInvalidRequestException>(async () => await load.AddAsync(default, default));
        }
        Assert.Equal((12_345, 12_345), (load.Acknowledged, load.AcknowledgedThrough));
        Assert.Equal(12_345, cluster.Applied.Count);
        await load.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(async () => await load.AddAsync(Key(1), Utf8("v")));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => load.FlushAsync());
    }

    [Fact]
    public async Task Disposal_ThatCannotSendWhatWasAdded_Throws_OnceAtMost()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(
            call.Method == Method.Write ? FakeNode.Refuse(call, StatusCode.ResourceExhausted, "DISK_FULL") : null);
        await using var client = cluster.Connect();
        var load = client.BulkLoad();
        await load.AddAsync(Key(1), Utf8("v"));
        Assert.Equal("DISK_FULL", (await Assert.ThrowsAsync<KvException>(() => load.DisposeAsync().AsTask())).Reason);
        await load.DisposeAsync();
        // The caller was told by the call that failed. What it throws must not be hidden behind an exception of the disposal.
        var told = client.BulkLoad();
        await told.AddAsync(Key(1), Utf8("v"));
        await Assert.ThrowsAsync<KvException>(() => told.FlushAsync());
        await told.DisposeAsync();
    }

    [Fact]
    public async Task Disposal_AfterACancelledCall_SendsNothing_UnlessTheCallerWentOn()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        foreach (var goesOn in (bool[])[false, true])
        {
            var load = client.BulkLoad();
            await load.AddAsync(Key(1), Utf8("v"));
            await Assert.ThrowsAnyAsync<OperationCanceledException>(() => load.FlushAsync(new CancellationToken(canceled: true)));
            if (goesOn)
                await load.AddAsync(Key(2), Utf8("v"));
            await load.DisposeAsync();
            Assert.Equal(goesOn ? 2 : 0, load.Acknowledged);
        }
    }

    [Fact]
    public async Task Stop_SendsNothingMore_AndNothingCanBeAdded()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await using var load = client.BulkLoad();
        for (var entry = 0; entry < 1_500; entry++)
            await load.AddAsync(Key(entry), Utf8("v"));
        await load.StopAsync();
        Assert.Equal((1_000, 1_000), (load.Acknowledged, load.AcknowledgedThrough));
        await Assert.ThrowsAsync<ObjectDisposedException>(async () => await load.AddAsync(Key(1), Utf8("v")));
        await load.DisposeAsync();
        Assert.Equal(1_000, cluster.Applied.Count);
    }

    private static readonly TimeSpan CallTime = TimeSpan.FromMilliseconds(150);

    private static int WritesOf(FakeCluster cluster) => cluster.Nodes[0].Calls.Count(static call => call.Method == Method.Write);

    /// <summary>Writes are executed and not answered while the value is true.</summary>
    private static StrongBox<bool> LoseAnswersOfWrites(FakeCluster cluster)
    {
        var areLost = new StrongBox<bool>(true);
        var node = cluster.Nodes[0];
        node.Script = call =>
        {
            if (call.Method != Method.Write || !Volatile.Read(ref areLost.Value))
                return Task.FromResult<Reply?>(null);
            node.Serve(call);
            return Task.FromResult<Reply?>(FakeNode.Silence);
        };
        return areLost;
    }

    private static byte[] Key(int number) => Utf8(number.ToString("d8", CultureInfo.InvariantCulture));

    private static byte[] Utf8(string text) => Encoding.UTF8.GetBytes(text);
}
