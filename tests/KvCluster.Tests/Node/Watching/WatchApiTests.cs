using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Storage.Context;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node.Watching;

/// <summary>Watches at nodes, through the client library and through a router: over changes of leaders, over shards, and what ends them.</summary>
public sealed class WatchApiTests
{
    [Fact]
    public async Task Watch_AtEveryReplica_SeesTheSameChanges()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await cluster.PutAsync(Put("k0", "before"));
        var streams = new List<AsyncServerStreamingCall<WatchResponse>>();
        foreach (var node in (uint[])[1, 2, 3])
        {
            await OpenAsync(cluster, node);
            // A follower that has not heard of its leader yet refuses.
            var (stream, first) = await Eventually.AnsweredAsync(
                async () =>
                {
                    var begun = cluster.KvOf(node).Watch(new WatchRequest { Prefix = Bytes("k"), WithPrevious = true });
                    return (begun, await NextAsync(begun));
                },
                static refused => refused.StatusCode == StatusCode.Unavailable);
            streams.Add(stream);
            Assert.Empty(first.Events);
            Assert.NotNull(first.Position);
        }
        for (var index = 1; index <= 20; index++)
            await cluster.PutAsync(Put($"k{index % 3}", $"{index}"));
        foreach (var stream in streams)
        {
            var events = await TakeAsync(stream, static found => found.Count > 0 && found[^1].Value.ToStringUtf8() == "20");
            Assert.Equal(
                Enumerable.Range(1, 20).Select(static index => $"k{index % 3}={index}"),
                events.Where(static one => one.Value.ToStringUtf8() != "before").Select(static one => $"{one.Key.ToStringUtf8()}={one.Value.ToStringUtf8()}"));
            stream.Dispose();
        }
    }

    [Fact]
    public async Task Watch_OfOneKeyWithPreviousValue_SeesOnlyThat()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var before = await cluster.PutAsync(Put("k", "0"));
        using var stream = cluster.KvOf(1).Watch(new WatchRequest { Prefix = Bytes("k"), Exact = true, WithPrevious = true });
        await NextAsync(stream);
        await cluster.PutAsync(Put("kk", "other"));
        // The first changes after the watch began may have been too early for the snapshot that previous values are read from.
        Event seen;
        var round = 0;
        do
        {
            var put = await cluster.PutAsync(Put("k", $"{++round}"));
            seen = Assert.Single(await TakeAsync(stream, static found => found.Count > 0));
            Assert.Equal(
                (EventKind.Put, EventReason.User, "k", $"{round}", put.Position.Etag),
                (seen.Kind, seen.Reason, seen.Key.ToStringUtf8(), seen.Value.ToStringUtf8(), seen.Etag));
            before = put;
        }
        while (!seen.PreviousKnown && round < 1_000);
        Assert.Equal($"{round - 1}", seen.PreviousValue.ToStringUtf8());
        await cluster.AskLeaderAsync(kv => kv.DeleteAsync(new DeleteRequest { Key = Bytes("k") }));
        var deleted = Assert.Single(await TakeAsync(stream, static found => found.Count > 0));
        Assert.Equal((EventKind.Delete, $"{round}", before.Position.Etag), (deleted.Kind, deleted.PreviousValue.ToStringUtf8(), deleted.PreviousEtag));
    }

    [Fact]
    public async Task Watch_Initial_SendsTheEntriesAndThenWhatChanges()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await Parallel.ForAsync(0, 300, async (index, _) => await cluster.PutAsync(Put($"k{index:000}", new string('v', 1_000))));
        using var stream = cluster.KvOf(1).Watch(new WatchRequest { Prefix = Bytes("k"), Initial = true });
        var (entries, messages) = (new List<string>(), 0);
        WatchResponse message;
        do
        {
            message = await NextAsync(stream);
            Assert.True(message.Initial);
            entries.AddRange(message.Events.Select(static one => one.Key.ToStringUtf8()));
            messages++;
        }
        while (message.Position is null);
        Assert.True(messages > 1);
        Assert.Equal(Enumerable.Range(0, 300).Select(static index => $"k{index:000}"), entries);
        await cluster.PutAsync(Put("k300", "new"));
        Assert.Equal("k300", Assert.Single(await TakeAsync(stream, static found => found.Count > 0)).Key.ToStringUtf8());
    }

    [Fact]
    public async Task Watch_AfterAPositionOfAnotherHistory_IsRefusedByName()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        var put = await cluster.PutAsync(Put("k", "1"));
        foreach (var node in (uint[])[1, 2, 3])
        {
            await OpenAsync(cluster, node);
            var position = new Position { Shard = 0, Etag = new V1.Etag { Epoch = put.Position.Etag.Epoch + 50, Change = 7 } };
            Assert.Equal((StatusCode.FailedPrecondition, "LINEAGE_CHANGED"), await EndAsync(cluster, node, new WatchRequest { After = { position } }));
            position.Lineage = 99;
            Assert.Equal((StatusCode.FailedPrecondition, "LINEAGE_CHANGED"), await EndAsync(cluster, node, new WatchRequest { After = { position } }));
        }
    }

    // One of the two counted, without a word about the other.
    [Fact]
    public async Task Watch_AfterTwoPositionsOfOneShard_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var position = (await cluster.PutAsync(Put("k", "1"))).Position;
        Assert.Equal((StatusCode.InvalidArgument, "BAD_REQUEST"), await EndAsync(cluster, 1, new WatchRequest { After = { position, position } }));
        var progress = new InitialProgress { Position = position };
        Assert.Equal((StatusCode.InvalidArgument, "BAD_REQUEST"), await EndAsync(
            cluster, 1, new WatchRequest { Initial = true, InitialAfter = { progress, progress } }));
    }

    [Theory]
    [InlineData("", true, "", "KEY_EMPTY")]
    [InlineData("k", false, "k", "BAD_REQUEST")]
    public async Task Watch_OfNoKeys_IsRefused(string prefix, bool exact, string end, string reason)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        Assert.Equal(
            (StatusCode.InvalidArgument, reason), await EndAsync(cluster, 1, new WatchRequest { Prefix = Bytes(prefix), Exact = exact, End = Bytes(end) }));
    }

    [Fact]
    public async Task Watches_ThatAreAbandoned_AreFreed()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        var streams = Enumerable.Range(0, 100)
            .Select(index => cluster.KvOf(1).Watch(new WatchRequest { Prefix = Bytes($"k{index}"), WithPrevious = true })).ToList();
        await Task.WhenAll(streams.Select(NextAsync));
        Assert.Equal(100, Watchers(cluster));
        streams.ForEach(static stream => stream.Dispose());
        await Eventually.TrueAsync(() => Watchers(cluster) == 0, "the watchers have left");
        var replica = cluster.ShardsOf(1).Find("k"u8)!.Replica!;
        await Eventually.TrueAsync(() => !replica.Store.Pages.Roots.Readers.Any(), "no snapshot is held");
    }

    [Fact]
    public async Task Watch_WhenItsNodeStops_EndsWithStopping()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        // The cluster's own channel ends before its node.
        using var channel = GrpcChannel.ForAddress(cluster.AddressOf(1));
        using var stream = new Kv.KvClient(channel.Calls()).Watch(new WatchRequest());
        await NextAsync(stream);
        var reading = EndOfAsync(stream);
        var stopping = cluster.StopNodeAsync(1);
        Assert.Equal((StatusCode.Unavailable, "STOPPING"), await reading.WaitAsync(Eventually.Limit));
        await stopping;
    }

    [Fact]
    public async Task WatchAsync_OverTwoShardsAndChangesOfLeader_SeesEachChangeOnce()
    {
        await using var cluster = await NodeCluster.StartAsync(3, NodeCluster.Steady, "m"u8.ToArray());
        await using var client = ClientOf(cluster, 1, 2, 3);
        var seen = new List<KvEvent>();
        using var enough = new CancellationTokenSource(Eventually.Limit);
        var begun = new TaskCompletionSource();
        var watching = Task.Run(async () =>
        {
            await foreach (var message in client.WatchAsync(new KvWatch { Prefix = default }, enough.Token))
            {
                begun.TrySetResult();
                lock (seen)
                    seen.AddRange(message.Events);
            }
        });
        await begun.Task.WaitAsync(Eventually.Limit);
        // The beginnings of the watches of the shards are not known, so only what follows changes that were seen counts.
        foreach (var key in (string[])["a", "z"])
        {
            await Eventually.TrueAsync(async () =>
            {
                await client.PutAsync(key, "0");
                return Values(key).Count > 0;
            }, $"a change of '{key}' was seen");
        }
        for (var index = 1; index <= 60; index++)
        {
            if (index == 20)
                await cluster.StopNodeAsync(await cluster.LeaderOfAsync(0));
            await client.PutAsync(index % 2 == 0 ? "a" : "z", $"{index}");
        }
        await Eventually.TrueAsync(() => Values("a").LastOrDefault() == "60" && Values("z").LastOrDefault() == "59", "the watch has everything");
        await enough.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => watching);
        Assert.Equal(Enumerable.Range(1, 30).Select(static index => $"{2 * index}"), Values("a").SkipWhile(static value => value == "0"));
        Assert.Equal(Enumerable.Range(1, 30).Select(static index => $"{(2 * index) - 1}"), Values("z").SkipWhile(static value => value == "0"));

        List<string> Values(string key)
        {
            lock (seen)
                return [.. seen.Where(one => Text(one.Key) == key).Select(static one => Text(one.Value))];
        }
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task WatchAsync_ResumedWithItsToken_MissesAndRepeatsNothing(bool throughRouter)
    {
        await using var shards = await TwoShards.StartAsync(throughRouter);
        var client = shards.Client;
        string? token = null;
        await foreach (var message in client.WatchAsync(new KvWatch()))
        {
            token = message.Token;
            if (token is not null)
                break;
        }
        var seen = new List<string>();
        for (var round = 0; round < 5; round++)
        {
            for (var index = 0; index < 4; index++)
                await client.PutAsync(index % 2 == 0 ? "a" : "z", $"{round}.{index}");
            // One event of the round, and the rest after resuming.
            var wanted = (4 * round) + 1 + (3 * (round % 2));
            await foreach (var message in client.WatchAsync(new KvWatch { After = token }))
            {
                seen.AddRange(message.Events.Select(static one => Text(one.Value)));
                token = message.Token;
                if (seen.Count >= wanted)
                    break;
            }
        }
        await foreach (var message in client.WatchAsync(new KvWatch { After = token }))
        {
            seen.AddRange(message.Events.Select(static one => Text(one.Value)));
            if (seen.Count >= 20)
                break;
        }
        var all = Enumerable.Range(0, 20).Select(static index => $"{index / 4}.{index % 4}").ToList();
        Assert.Equal(all.Where(static value => value[^1] is '0' or '2'), seen.Where(static value => value[^1] is '0' or '2'));
        Assert.Equal(all.Where(static value => value[^1] is '1' or '3'), seen.Where(static value => value[^1] is '1' or '3'));
    }

    /// <summary>A token of one shard would let whoever goes on with it miss what happens in the others meanwhile.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task WatchAsync_AfterAPositionOfOneShard_HasNoTokenBeforeAllHaveTold(bool throughRouter)
    {
        await using var shards = await TwoShards.StartAsync(throughRouter);
        var client = shards.Client;
        var first = (await client.PutAsync("a", "before")).Position;
        await client.PutAsync("a", "after");
        var values = new List<string>();
        await foreach (var message in client.WatchAsync(new KvWatch { AfterPositions = [first] }))
        {
            values.AddRange(message.Events.Select(static one => Text(one.Value)));
            if (message.Token is not null)
                Assert.Equal(2, WatchToken.Parse(message.Token).Count);
            if (message.Token is not null && values.Count > 0)
                break;
        }
        Assert.Equal(["after"], values);
        await Assert.ThrowsAsync<KvInvalidRequestException>(
            async () => await client.WatchAsync(new KvWatch { AfterPositions = [first, first] }).GetAsyncEnumerator().MoveNextAsync());
    }

    [Fact]
    public async Task WatchAsync_AfterADamagedToken_IsRefused()
    {
        await using var client = new KvClient("http://127.0.0.1:1");
        var failure = await Assert.ThrowsAsync<KvInvalidRequestException>(
            async () => await client.WatchAsync(new KvWatch { After = "w1.!" }).GetAsyncEnumerator().MoveNextAsync());
        Assert.Equal("BAD_REQUEST", failure.Reason);
        var repeated = WatchToken.Of(
            [new Position { Shard = 1, Etag = new V1.Etag { Epoch = 1 } }, new Position { Shard = 1, Etag = new V1.Etag { Epoch = 2 } }]);
        await Assert.ThrowsAsync<KvInvalidRequestException>(
            async () => await client.WatchAsync(new KvWatch { After = repeated }).GetAsyncEnumerator().MoveNextAsync());
    }

    /// <summary>The journal of a small bound is recycled under a watcher that was away.</summary>
    [Fact]
    public async Task WatchAsync_AfterWhatTheJournalNoLongerHas_SaysTheOldestPosition()
    {
        await using var cluster = await NodeCluster.StartAsync(
            new StoreOptions { SegmentBytesMin = 64 << 10, SegmentBytesMax = 64 << 10, RetainedJournalBytes = 0 });
        await using var client = ClientOf(cluster, 1);
        var first = (await client.PutAsync("k", "0")).Position;
        var replica = cluster.ShardsOf(1).Find("k"u8)!.Replica!;
        for (var round = 0; round < 3; round++)
        {
            for (var index = 0; index < 20; index++)
                await client.PutAsync("k", new string('v', 10_000));
            await replica.CheckpointAsync();
        }
        var failure = await Assert.ThrowsAsync<KvCompactedException>(async () =>
        {
            await foreach (var message in client.WatchAsync(new KvWatch { AfterPositions = [first] }))
                Assert.Empty(message.Events);
        });
        Assert.Equal("COMPACTED", failure.Reason);
        Assert.True(failure.Oldest.Etag > first.Etag);
        await foreach (var message in client.WatchAsync(new KvWatch { AfterPositions = [failure.Oldest] }))
        {
            Assert.Equal(failure.Oldest.Shard, message.Position.Shard);
            break;
        }
    }

    /// <summary>nats.net #639: one watch over many keys stopped.</summary>
    /// <summary>
    /// Of more than 256 KiB they are sent in pieces, of more than 1 MiB they are announced before, and the arrays that they were in are used again.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task WatchAsync_OfLargeValues_ReturnsTheirBytes(bool throughRouter)
    {
        await using var shards = await TwoShards.StartAsync(throughRouter);
        var (client, random, values, seen) = (shards.Client, new Random(1), new List<byte[]>(), new List<byte[]>());
        var before = (await client.PutAsync("a", "before")).Position;
        foreach (var bytes in (int[])[5 << 20, 300_000, 100, 2 << 20, 200_000, 5 << 20])
        {
            var value = new byte[bytes];
            random.NextBytes(value);
            values.Add(value);
            await client.PutAsync("a"u8.ToArray(), value);
        }
        await foreach (var message in client.WatchAsync(new KvWatch { Prefix = Bytes("a").Memory, AfterPositions = [before] }))
        {
            seen.AddRange(message.Events.Select(static one => one.Value.ToArray()));
            if (seen.Count >= values.Count)
                break;
        }
        Assert.Equal(values.Select(static value => value.Length), seen.Select(static value => value.Length));
        Assert.All(values.Zip(seen), static one => Assert.True(one.First.AsSpan().SequenceEqual(one.Second)));
    }

    [Fact]
    [Trait("Turn", "4")]
    public async Task WatchAsync_OfFiveThousandKeys_SeesThemAll()
    {
        const int Keys = 5_000;
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var client = ClientOf(cluster, 1);
        var seen = new HashSet<string>();
        var watching = Task.Run(async () =>
        {
            await foreach (var message in client.WatchAsync(new KvWatch { Prefix = Bytes("w").Memory, AfterPositions = [new ShardPosition(0, default)] }))
            {
                foreach (var happened in message.Events)
                    Assert.True(seen.Add(Text(happened.Key)));
                if (seen.Count == Keys)
                    return;
            }
        });
        await Parallel.ForAsync(0, Keys, async (index, _) => await client.PutAsync($"w{index}", "v"));
        await watching.WaitAsync(Eventually.Limit);
        Assert.Equal(Keys, seen.Count);
    }

    private static KvClient ClientOf(NodeCluster cluster, params uint[] nodes) =>
        new(new KvClientOptions { Endpoints = [.. nodes.Select(cluster.AddressOf)], Timeout = Eventually.Limit });

    private static long Watchers(NodeCluster cluster)
    {
        var values = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, values);
        listener.RecordObservableInstruments();
        return (long)values["kvcluster.node.watchers"];
    }

    // A replica is opened some time after its node.
    private static Task OpenAsync(NodeCluster cluster, uint node) =>
        Eventually.TrueAsync(() => cluster.ShardsOf(node).Find("k"u8)?.Replica is not null, $"node {node} has opened its replica");

    private static async Task<WatchResponse> NextAsync(AsyncServerStreamingCall<WatchResponse> stream)
    {
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        return stream.ResponseStream.Current;
    }

    private static async Task<List<Event>> TakeAsync(AsyncServerStreamingCall<WatchResponse> stream, Func<List<Event>, bool> isEnough)
    {
        var events = new List<Event>();
        while (!isEnough(events))
            events.AddRange((await NextAsync(stream)).Events);
        return events;
    }

    private static async Task<(StatusCode Code, string? Reason)> EndAsync(NodeCluster cluster, uint node, WatchRequest request)
    {
        (StatusCode Code, string? Reason) end = default;
        await Eventually.TrueAsync(async () =>
        {
            using var stream = cluster.KvOf(node).Watch(request);
            // A follower that has not heard of its leader yet cannot tell.
            return (end = await EndOfAsync(stream)).Reason is not "NO_LEADER";
        }, "the node has heard of its leader");
        return end;
    }

    private static async Task<(StatusCode Code, string? Reason)> EndOfAsync(AsyncServerStreamingCall<WatchResponse> stream)
    {
        try
        {
            while (await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit))
                Assert.Empty(stream.ResponseStream.Current.Events);
            return (StatusCode.OK, null);
        }
        catch (RpcException end)
        {
            return (end.StatusCode, end.GetRpcStatus()?.GetDetail<ErrorInfo>()?.Reason);
        }
    }

    private static PutRequest Put(string key, string value) => new() { Key = Bytes(key), Value = Bytes(value) };

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static string Text(ReadOnlyMemory<byte> bytes) => System.Text.Encoding.UTF8.GetString(bytes.Span);

    /// <summary>A node with two shards, and a client of it or of a router in front of it.</summary>
    private sealed class TwoShards(NodeCluster cluster, RouterHost? router) : IAsyncDisposable
    {
        public KvClient Client { get; } = router is null
            ? ClientOf(cluster, 1)
            : new KvClient(new KvClientOptions { Endpoints = [router.Address], Gateway = true, Timeout = Eventually.Limit });

        public static async Task<TwoShards> StartAsync(bool throughRouter)
        {
            var cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
            await cluster.LeaderOfAsync(0);
            await cluster.LeaderOfAsync(1);
            var options = new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit };
            return new TwoShards(
                cluster, throughRouter ? await RouterHost.StartAsync(options, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None) : null);
        }

        public async ValueTask DisposeAsync()
        {
            await Client.DisposeAsync();
            if (router is not null)
                await router.DisposeAsync();
            await cluster.DisposeAsync();
        }
    }
}
