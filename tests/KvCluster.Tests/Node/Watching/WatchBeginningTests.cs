using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Api.Watches;
using KvCluster.Node.Watching;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Context;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node.Watching;

/// <summary>
/// The entries that a watch begins with. They began anew when a stream broke or the snapshot became too old, and nobody told the reader: a key that was deleted
/// meanwhile stayed in its view, 2,000 keys where the store had 1,999. And where they took longer than a minute they began anew for ever.
/// </summary>
public sealed class WatchBeginningTests
{
    private const int Keys = 600;

    /// <summary>Less than what is written beside a message that is not read.</summary>
    private const long SmallBoundBytes = 128 << 10;

    [Fact]
    public async Task Entries_AfterABrokenStream_GoOnBehindTheChangesOfThoseSent()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await FillAsync(cluster);
        List<string> sent = [];
        InitialProgress progress;
        using (var first = cluster.KvOf(1).Watch(new WatchRequest { Prefix = Bytes("k"), Initial = true }))
        {
            var message = await NextAsync(first);
            Assert.True(message is { Initial: true, Position: null, InitialComplete: false });
            sent.AddRange(message.Events.Select(static one => one.Key.ToStringUtf8()));
            progress = message.Progress;
        }
        Assert.Equal(sent[^1], progress.Through.ToStringUtf8());
        await cluster.AskLeaderAsync(kv => kv.DeleteAsync(new DeleteRequest { Key = Bytes("k000") }));
        await cluster.PutAsync(new PutRequest { Key = Bytes("k001"), Value = Bytes("new") });
        await cluster.PutAsync(new PutRequest { Key = Bytes("k599x"), Value = Bytes("new") });
        await cluster.AskLeaderAsync(kv => kv.DeleteAsync(new DeleteRequest { Key = Bytes("k598") }));
        using var second = cluster.KvOf(1).Watch(new WatchRequest { Prefix = Bytes("k"), Initial = true, InitialAfter = { progress } });
        var events = new List<Event>();
        WatchResponse last;
        do
        {
            last = await NextAsync(second);
            Assert.True(last.Initial);
            events.AddRange(last.Events);
        }
        while (!last.InitialComplete);
        Assert.NotNull(last.Position);
        Assert.Equal((EventKind.Delete, "k000"), (events[0].Kind, events[0].Key.ToStringUtf8()));
        Assert.Equal((EventKind.Put, "k001", "new"), (events[1].Kind, events[1].Key.ToStringUtf8(), events[1].Value.ToStringUtf8()));
        var rest = Enumerable.Range(0, Keys).Select(static index => $"k{index:000}").Except(sent).Except(["k598"]).Append("k599x");
        Assert.Equal(rest, events.Skip(2).Select(static one => one.Key.ToStringUtf8()));
        Assert.All(events.Skip(2), static one => Assert.Equal(EventKind.Put, one.Kind));
        await cluster.PutAsync(new PutRequest { Key = Bytes("k001"), Value = Bytes("later") });
        Assert.Equal("later", Assert.Single((await UntilEventAsync(second)).Events).Value.ToStringUtf8());
    }

    /// <summary>Each page is of a newer snapshot.</summary>
    [Fact]
    public async Task Entries_ThatTakeLongerThanAnySnapshotIsKept_Complete()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { SnapshotAgeMax = TimeSpan.FromTicks(1) });
        await FillAsync(cluster);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var (view, changes) = (new WatchView(), 0);
        await FollowAsync(client, view, client, () => ChangeAsync(client, changes++));
        Assert.Equal((1, 0, 0), (view.Completions, view.Forgotten, view.Repeats));
        Assert.True(changes > 3);
    }

    [Fact]
    public Task WatchAsync_WhoseStreamsBreakInTheBeginning_HasTheStateOfTheStore() => HasTheStateOfTheStoreAsync(throughRouter: false);

    [Fact]
    [Trait("Turn", "3")]
    public Task WatchAsync_WhoseStreamsOfARouterBreakInTheBeginning_HasTheStateOfTheStore() => HasTheStateOfTheStoreAsync(throughRouter: true);

    private static async Task HasTheStateOfTheStoreAsync(bool throughRouter)
    {
        await using var cluster = await NodeCluster.StartAsync(3, "k200"u8.ToArray(), "k400"u8.ToArray());
        await FillAsync(cluster);
        await using var writer = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await using var router = throughRouter
            ? await RouterHost.StartAsync(
                new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit },
                new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None)
            : null;
        var changes = 0;
        using var streams =
            new BreakingStreams { BreaksLeft = 12, MessagesMax = 1, OnBreak = async () => await ChangeAsync(writer, Interlocked.Increment(ref changes)) };
        await using var client = throughRouter ? streams.GatewayClient(router!.Address) : streams.Client(cluster.AddressOf(1));
        var view = new WatchView();
        await FollowAsync(client, view, writer, static () => Task.CompletedTask);
        Assert.Equal((1, 0, 0), (view.Completions, view.Forgotten, view.Repeats));
        Assert.Equal(0, streams.BreaksLeft);
    }

    /// <summary>
    /// The keys sent need the changes since their state, and nothing but the watch holds the journal here. Beyond the bound the watch has to begin anew.
    /// </summary>
    [Theory]
    [InlineData(64L << 20, true)]
    [InlineData(SmallBoundBytes, false)]
    public async Task Entries_WhoseReaderWaits_GoOnInANewerSnapshot_AsFarAsTheBoundOfTheJournalAllows(long boundBytes, bool goesOn)
    {
        var bounds = new StoreOptions { SegmentBytesMin = 64 << 10, SegmentBytesMax = 64 << 10, RetainedJournalBytes = 0, WatchedJournalBytes = boundBytes };
        await using var cluster = await NodeCluster.StartAsync(bounds);
        await FillAsync(cluster);
        await using var writer = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var (shard, time) = (cluster.ShardsOf(1).Find("k"u8)!, new ManualTime());
        await using var hubs = new WatchHubs(bounds, time, NullLogger<WatchHubs>.Instance);
        // Each message is of a newer snapshot.
        using var kept = new KeptSnapshots(time, ageMax: TimeSpan.Zero);
        var lookup = new ShardLookup(new(1), cluster.ShardsOf(1), hot: null!);
        var watches = new KvWatches(lookup, hubs, new ReadThreads(int.MaxValue, threads: 0), new CallMemory(CallMemory.MebibytesDefault), time, kept);
        Assert.Null(WatchQuery.TryRead(new WatchRequest { Prefix = Bytes("k"), Initial = true }.ToByteArray(), out var query));
        using var caller = new CancellationTokenSource();
        var (keys, through, pauses) = (new SortedSet<string>(StringComparer.Ordinal), ByteString.Empty, 0);
        var watching = watches.WatchAsync(shard, query, new Reader(ReadAsync), caller.Token).WaitAsync(Eventually.Limit);
        if (!goesOn)
        {
            Assert.Equal("COMPACTED", (await watching).Reason);
            Assert.Equal(1, pauses);
            return;
        }
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => watching);
        Assert.True(caller.IsCancellationRequested);
        Assert.Equal(2, pauses);
        Assert.Equal((await StoredAsync(writer)).Keys, keys);

        // Takes long for two messages with entries.
        async Task ReadAsync(WatchResponse message)
        {
            Assert.True(message.Initial);
            foreach (var happened in message.Events)
                Assert.True(happened.Kind == EventKind.Put ? keys.Add(happened.Key.ToStringUtf8()) : keys.Remove(happened.Key.ToStringUtf8()));
            if (message.InitialComplete)
            {
                await caller.CancelAsync();
            }
            else if (message.Progress.Through != through && pauses < 2)
            {
                through = message.Progress.Through;
                await ChangeBesideAsync(pauses++);
            }
        }

        async Task ChangeBesideAsync(int pause)
        {
            await writer.DeleteAsync($"k{pause:000}");
            // The journal of the first round is covered by both meta pages after the third one. Twice as many, for what is held is counted later.
            var rounds = 0;
            await Eventually.TrueAsync(
                async () =>
                {
                    for (var index = 0; index < 20; index++)
                        await writer.PutAsync("other", new string('v', 10_000));
                    // The hub looks what it has to hold.
                    time.Advance(TimeSpan.FromMilliseconds(250));
                    await shard.Replica!.CheckpointAsync();
                    return ++rounds >= 6 && IsHeld();
                },
                "the journal is held for the watch, within the bound");
        }

        bool IsHeld()
        {
            var bytes = shard.Replica!.Store.Statistics.JournalKeptBytes;
            return goesOn == (bytes > SmallBoundBytes);
        }
    }

    /// <summary>While nobody holds the journal, it is recycled beyond what the beginning lacks.</summary>
    [Fact]
    public async Task WatchAsync_WhoseBeginningCannotGoOn_IsToldToForget()
    {
        await using var cluster = await NodeCluster.StartAsync(
            new StoreOptions { SegmentBytesMin = 64 << 10, SegmentBytesMax = 64 << 10, RetainedJournalBytes = 0 });
        await FillAsync(cluster);
        await using var writer = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var replica = cluster.ShardsOf(1).Find("k"u8)!.Replica!;
        using var streams = new BreakingStreams
        {
            BreaksLeft = 1,
            OnBreak = async () =>
            {
                await writer.DeleteAsync("k000");
                // The journal of the first round is covered by both meta pages after the third one. The node may hear later that the stream was given up, and
                // holds the journal until then.
                var rounds = 0;
                await Eventually.TrueAsync(
                    async () =>
                    {
                        for (var index = 0; index < 20; index++)
                            await writer.PutAsync("other", new string('v', 10_000));
                        await replica.CheckpointAsync();
                        return ++rounds >= 3 && replica.Store.Statistics.JournalKeptBytes <= SmallBoundBytes;
                    },
                    "the journal is no longer held for the broken stream");
            },
        };
        await using var client = streams.Client(cluster.AddressOf(1));
        var view = new WatchView();
        await FollowAsync(client, view, writer, static () => Task.CompletedTask);
        Assert.Equal((1, 1, 0), (view.Completions, view.Forgotten, view.Repeats));
        Assert.Equal(Keys - 1, view.Entries.Count);
    }

    [Fact]
    public async Task Watch_OfOneKeyWithAStartBeyondIt_IsRoutedByTheKey()
    {
        await using var cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
        await cluster.LeaderOfAsync(0);
        await cluster.LeaderOfAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await foreach (var message in client.WatchAsync(new KvWatch { Prefix = "a"u8.ToArray(), IsOneKey = true, Start = "z"u8.ToArray(), Initial = true }))
        {
            if (message.Events.Count > 0)
            {
                Assert.Equal(0u, message.Position.Shard);
                break;
            }
            await client.PutAsync("a", "1");
        }
    }

    [Fact]
    public async Task Touch_OfAnAbsentKey_IsSeenByNoWatcher()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        using var stream = cluster.KvOf(1).Watch(new WatchRequest { Prefix = Bytes("k") });
        await NextAsync(stream);
        var touched = await cluster.AskLeaderAsync(kv => kv.TouchAsync(new TouchRequest { Key = Bytes("k"), TtlMs = 60_000 }));
        Assert.False(touched.Existed);
        var put = await cluster.PutAsync(new PutRequest { Key = Bytes("k"), Value = Bytes("1") });
        Assert.True((await cluster.AskLeaderAsync(kv => kv.TouchAsync(new TouchRequest { Key = Bytes("k"), TtlMs = 60_000 }))).Existed);
        // A key that an earlier operation of the same request makes does exist.
        await cluster.AskLeaderAsync(kv => kv.WriteAsync(new V1.WriteRequest
        {
            Operations =
            {
                new Operation { Put = new PutOperation { Key = Bytes("k2"), Value = Bytes("1") } },
                new Operation { Touch = new TouchOperation { Key = Bytes("k2"), TtlMs = 60_000 } },
                new Operation { Touch = new TouchOperation { Key = Bytes("k3"), TtlMs = 60_000 } },
            },
        }));
        var seen = new List<Event>();
        while (seen.Count < 4)
            seen.AddRange((await UntilEventAsync(stream)).Events);
        Assert.Equal(put.Position.Etag, seen[0].Etag);
        Assert.Equal(["Put k", "Touch k", "Put k2", "Touch k2"], seen.Select(static one => $"{one.Kind} {one.Key.ToStringUtf8()}"));
    }

    // Of about 1 KB each, so that there are several messages.
    private static async Task FillAsync(NodeCluster cluster)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await Parallel.ForAsync(0, Keys, async (index, _) => await client.PutAsync($"k{index:000}", new string('v', 1_000)));
    }

    // Deletes and puts at the front, where entries were sent, and at the back.
    private static async Task ChangeAsync(KvClient client, int round)
    {
        await client.DeleteAsync($"k{round:000}");
        await client.PutAsync($"k{round + 20:000}", $"changed {round}");
        await client.DeleteAsync($"k{Keys - 1 - round:000}");
        await client.PutAsync("k999", $"{round}");
    }

    // Applies all messages until the beginning is complete and the view has what the store has then.
    private static async Task FollowAsync(KvClient client, WatchView view, KvClient reader, Func<Task> changeAsync)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        SortedDictionary<string, string>? stored = null;
        try
        {
            await foreach (var message in client.WatchAsync(new KvWatch { Prefix = "k"u8.ToArray(), Initial = true }, limit.Token))
            {
                view.Apply(message);
                if (view.Completions == 0)
                    await changeAsync();
                else if ((stored ??= await StoredAsync(reader)).SequenceEqual(view.Entries))
                    return;
            }
        }
        catch (OperationCanceledException) when (stored is not null)
        {
            Assert.Equal(stored, view.Entries);
        }
    }

    private static async Task<SortedDictionary<string, string>> StoredAsync(KvClient client)
    {
        var stored = new SortedDictionary<string, string>(StringComparer.Ordinal);
        await foreach (var entry in client.ScanAsync(new KvScan { Prefix = "k"u8.ToArray() }))
            stored.Add(System.Text.Encoding.UTF8.GetString(entry.Key.Span), System.Text.Encoding.UTF8.GetString(entry.Value.Span));
        return stored;
    }

    private static async Task<WatchResponse> NextAsync(AsyncServerStreamingCall<WatchResponse> stream)
    {
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        return stream.ResponseStream.Current;
    }

    private static async Task<WatchResponse> UntilEventAsync(AsyncServerStreamingCall<WatchResponse> stream)
    {
        while (true)
        {
            if (await NextAsync(stream) is { Events.Count: > 0 } message)
                return message;
        }
    }

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    /// <summary>The caller of a node's stream, for whom a message is written when he has read it.</summary>
    private sealed class Reader(Func<WatchResponse, Task> read) : IServerStreamWriter<MessageBytes>
    {
        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message)
        {
            var response = WatchResponse.Parser.ParseFrom(message.Written);
            message.Return();
            return read(response);
        }

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken) => WriteAsync(message);
    }
}
