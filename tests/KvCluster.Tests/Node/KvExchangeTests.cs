using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Node.Api;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Node;

/// <summary>Exchanges with stuck shards, cancelled calls, unexpected exceptions and large answers.</summary>
public sealed class KvExchangeTests
{
    /// <summary>
    /// A shard without a majority answers no changes. Four thousand of its changes made a node stop reading the stream, so later reads, of any shard,
    /// were not served either.
    /// </summary>
    [Fact]
    public async Task Exchange_WithChangesOfAStuckShard_StillServesReads()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("v") });
        var leader = await cluster.SettledLeaderAsync();
        foreach (var other in new[] { 1u, 2u, 3u }.Where(node => node != leader))
            await cluster.StopNodeAsync(other);
        using var exchange = cluster.KvOf(leader).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        var put = new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("w") }.ToByteString();
        for (var first = 1; first <= 6_000; first += 500)
            await exchange.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls = { Enumerable.Range(first, 500).Select(id => new Call { Id = (ulong)id, Method = V1.Method.Put, Request = put, TimeoutMs = 60_000 }) }
            });
        var get = new GetRequest { Key = ByteString.CopyFromUtf8("k"), Read = new ReadOptions { Mode = ReadMode.Stale } }.ToByteString();
        await exchange.RequestStream.WriteAsync(new ExchangeRequest { Calls = { new Call { Id = 10_000, Method = V1.Method.Get, Request = get } } });
        Reply? read = null;
        var before = new List<Reply>();
        while (read is null && await exchange.ResponseStream.MoveNext(CancellationToken.None))
        {
            read = exchange.ResponseStream.Current.Replies.FirstOrDefault(static reply => reply.Id == 10_000);
            before.AddRange(exchange.ResponseStream.Current.Replies.Where(static reply => reply.Id != 10_000));
        }
        Assert.Equal(0, read!.Code);
        // The changes are still stuck. The only answers are refusals of those that found no place.
        Assert.All(before, reply => Assert.Equal("BUSY", Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Reason));
    }

    /// <summary>
    /// Twenty MiB of changes of such a shard also stopped the node from reading the stream. Giving them up does not tell the outcome of those already
    /// taken.
    /// </summary>
    [Fact]
    public async Task Exchange_WithLargeChangesOfAStuckShard_StillServesReadsAndLeavesTheChangesPending()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("v") });
        var leader = await cluster.SettledLeaderAsync();
        foreach (var other in new[] { 1u, 2u, 3u }.Where(node => node != leader))
            await cluster.StopNodeAsync(other);
        using var exchange = cluster.KvOf(leader).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        var put = new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = UnsafeByteOperations.UnsafeWrap(new byte[6 << 20]) }.ToByteString();
        for (var id = 1ul; id <= 6; id++)
            await exchange.RequestStream.WriteAsync(
                new ExchangeRequest { Calls = { new Call { Id = id, Method = V1.Method.Put, Request = put, TimeoutMs = 600_000 } } });
        var get = new GetRequest { Key = ByteString.CopyFromUtf8("k"), Read = new ReadOptions { Mode = ReadMode.Stale } }.ToByteString();
        await exchange.RequestStream.WriteAsync(
            new ExchangeRequest { Cancelled = { 1, 2, 3, 4, 5, 6 }, Calls = { new Call { Id = 10_000, Method = V1.Method.Get, Request = get } } });
        var replies = new List<Reply>();
        while (replies.All(static reply => reply.Id != 10_000) && await exchange.ResponseStream.MoveNext(CancellationToken.None))
            replies.AddRange(exchange.ResponseStream.Current.Replies);
        Assert.Equal(0, replies.Single(static reply => reply.Id == 10_000).Code);
        Assert.All(replies.Where(static reply => reply.Id != 10_000), reply => Assert.Contains(ReasonOf(reply), (string[])["BUSY", "CANCELLED"]));
        Assert.InRange(replies.Count, 1, 5);
    }

    /// <summary>A change whose caller gave it up while it waited kept its place and was applied however much later.</summary>
    [Fact]
    public async Task Cancel_OfWaitingChanges_DropsThemAndReportsWhichWereApplied()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("first"), Value = ByteString.CopyFromUtf8("v") });
        using var exchange = cluster.KvOf(1).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        var outcomes = new HashSet<int>();
        // Whether the writer or the cancel comes first is chance. Repeat until both were seen.
        for (var round = 0; outcomes.Count < 2; round++)
        {
            var puts = Enumerable.Range(1, 500)
                .Select(id => new PutRequest { Key = ByteString.CopyFromUtf8($"{round}-{id}"), Value = ByteString.CopyFromUtf8("v") }).ToList();
            await exchange.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls = { puts.Select((put, index) => new Call { Id = (ulong)index, Method = Method.Put, Request = put.ToByteString() }) },
                Cancelled = { Enumerable.Range(0, puts.Count).Where(index => index % 3 > 0).Select(index => (ulong)index) },
            });
            var replies = new Dictionary<ulong, Reply>();
            while (replies.Count < puts.Count && await exchange.ResponseStream.MoveNext(CancellationToken.None))
            {
                foreach (var reply in exchange.ResponseStream.Current.Replies)
                    replies.Add(reply.Id, reply);
            }
            for (var index = 0; index < puts.Count; index++)
            {
                var reply = replies[(ulong)index];
                if (reply.Code != 0)
                    Assert.Equal(
                        ("CANCELLED", "no", true),
                        (ReasonOf(reply), Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Metadata["applied"], index % 3 > 0));
                Assert.Equal(reply.Code == 0, (await cluster.KvOf(1).GetAsync(new GetRequest { Key = puts[index].Key })).Found);
                outcomes.Add(reply.Code);
            }
        }
    }

    /// <summary>A call that its caller had given up kept its place until its answer, because there was no way to cancel it.</summary>
    [Fact]
    public async Task Cancel_OfWaitingReads_EndsThemAndFreesTheirPlaces()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var route = (await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("v") })).Position;
        using var exchange = cluster.KvOf(1).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        // They wait for changes that nobody makes.
        var seen = new Position { Shard = route.Shard, Etag = new V1.Etag { Epoch = route.Etag.Epoch, Change = route.Etag.Change + 1_000 } };
        var waits = new GetRequest { Key = ByteString.CopyFromUtf8("k"), Read = new ReadOptions { Mode = ReadMode.Session, Seen = { seen } } }.ToByteString();
        const int Sent = 2_000;
        var replies = new Dictionary<ulong, Reply>();
        for (var round = 0; round < 2; round++)
        {
            replies.Clear();
            await exchange.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls = { Enumerable.Range(1, Sent).Select(id => new Call { Id = (ulong)id, Method = V1.Method.Get, Request = waits, TimeoutMs = 600_000 }) }
            });
            await exchange.RequestStream.WriteAsync(new ExchangeRequest { Cancelled = { Enumerable.Range(1, Sent).Select(id => (ulong)id) } });
            while (replies.Count < Sent && await exchange.ResponseStream.MoveNext(CancellationToken.None))
            {
                foreach (var reply in exchange.ResponseStream.Current.Replies)
                    replies.Add(reply.Id, reply);
            }
            var reasons = replies.Values.Select(reply => Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Reason)
                .CountBy(reason => reason).ToDictionary();
            // As many as the reads of one shard may occupy on a stream, in the second round as well.
            Assert.Equal(1_536, reasons["CANCELLED"]);
            Assert.Equal(Sent - 1_536, reasons["BUSY"]);
        }
    }

    /// <summary>
    /// The reads of a stream that the node had ended waited on for nobody, and kept places from other callers of their shard. Only those whose caller had gone
    /// away ended.
    /// </summary>
    [Fact]
    public async Task WaitingRead_OfAStreamThatBreaks_EndsAndFreesItsPlace()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var key = ByteString.CopyFromUtf8("k");
        var position = (await cluster.PutAsync(new PutRequest { Key = key, Value = ByteString.CopyFromUtf8("v") })).Position;
        await using var metrics = new NodeMetrics(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 0);
        var memory = new CallMemory(CallMemory.MebibytesDefault);
        var places = new ExchangePlaces(memory.Requests);
        var exchange = new KvExchange(
            CallsOf(new ShardLookup(new(1), cluster.ShardsOf(1), metrics.Activity.Hot), metrics),
            places, memory, TimeProvider.System, new Responses(), NullLogger.Instance, CancellationToken.None);
        // It waits for changes that nobody makes.
        var seen = new Position { Shard = position.Shard, Etag = new V1.Etag { Epoch = position.Etag.Epoch, Change = position.Etag.Change + 1_000 } };
        var get = new GetRequest { Key = key, Read = new ReadOptions { Mode = ReadMode.Session, Seen = { seen } } };
        var end = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var running = exchange.RunAsync(
            new Requests(new ExchangeRequest { Calls = { new Call { Id = 1, Method = Method.Get, Request = get.ToByteString() } } }) { End = end.Task });
        await Eventually.TrueAsync(() => places.Taken == 1, "the read has its place");
        end.SetException(new RpcException(new global::Grpc.Core.Status(StatusCode.InvalidArgument, "malformed")));
        var failure = await Assert.ThrowsAsync<RpcException>(() => running.WaitAsync(Eventually.Limit));
        Assert.Equal(StatusCode.InvalidArgument, failure.StatusCode);
        await Eventually.TrueAsync(() => places.Taken == 0, "the read has given its place back");
    }

    /// <summary>Such a call was never answered, its place was never freed, and its exception broke the stream for all other calls.</summary>
    [Fact]
    public async Task Call_ThrowsUnexpectedly_IsAnsweredInternalAndTheStreamContinues()
    {
        // Without shards every call that looks one up fails.
        await using var metrics = new NodeMetrics(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 0);
        var responses = new Responses();
        var memory = new CallMemory(CallMemory.MebibytesDefault);
        var exchange = new KvExchange(
            CallsOf(new ShardLookup(new(1), null!, metrics.Activity.Hot), metrics),
            new ExchangePlaces(memory.Requests), memory, TimeProvider.System, responses, NullLogger.Instance, CancellationToken.None);
        var key = ByteString.CopyFromUtf8("k");
        await exchange.RunAsync(new Requests(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = Method.Get, Request = new GetRequest { Key = key }.ToByteString() },
                new Call { Id = 2, Method = Method.Put, Request = new PutRequest { Key = key }.ToByteString() },
                new Call { Id = 3, Method = Method.Get, Request = new GetRequest().ToByteString() },
            },
        })).WaitAsync(Eventually.Limit);
        var reasons = responses.Replies.OrderBy(reply => reply.Id).Select(reply => Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!);
        Assert.Equal(
            [("INTERNAL", "no"), ("OUTCOME_UNKNOWN", "unknown"), ("KEY_EMPTY", "no")], reasons.Select(info => (info.Reason, info.Metadata["applied"])));
    }

    /// <summary>All waiting replies went into one message: 130 Gets of 8 MiB became a message of 1 GB, which no client accepted.</summary>
    [Fact]
    public async Task Replies_ToManyLargeReads_ArriveInMessagesOfAtMost4MiB()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var key = ByteString.CopyFromUtf8("big");
        await cluster.PutAsync(new PutRequest { Key = key, Value = UnsafeByteOperations.UnsafeWrap(new byte[1_500_000]) });
        using var call = cluster.KvOf(1).Exchange();
        var request = new ExchangeRequest();
        for (ulong id = 1; id <= 40; id++)
            request.Calls.Add(new Call { Id = id, Method = Method.Get, Request = new GetRequest { Key = key }.ToByteString() });
        await call.RequestStream.WriteAsync(request);
        await call.RequestStream.CompleteAsync();
        var answered = new List<ulong>();
        while (await call.ResponseStream.MoveNext(CancellationToken.None))
        {
            Assert.InRange(call.ResponseStream.Current.CalculateSize(), 1, 4 << 20);
            Assert.All(call.ResponseStream.Current.Replies, reply => Assert.Equal(0, reply.Code));
            answered.AddRange(call.ResponseStream.Current.Replies.Select(reply => reply.Id));
        }
        Assert.Equal(request.Calls.Select(one => one.Id), answered);
    }

    /// <summary>A call that waits because nobody reads the answers is not started after its deadline.</summary>
    [Fact]
    public async Task Call_DeadlinePassesBeforeItsTurn_IsNotStarted()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var key = ByteString.CopyFromUtf8("big");
        await cluster.PutAsync(new PutRequest { Key = key, Value = UnsafeByteOperations.UnsafeWrap(new byte[8 << 20]) });
        var get = new GetRequest { Key = key }.ToByteString();
        // A node that is slow to see the message counts the call's time from then on.
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(200), async time =>
        {
            using var call = cluster.KvOf(1).Exchange();
            var put = new PutRequest { Key = ByteString.CopyFromUtf8($"late {time}"), Value = ByteString.CopyFromUtf8("v") };
            var request = new ExchangeRequest();
            for (ulong id = 1; id <= 8; id++)
                request.Calls.Add(new Call { Id = id, Method = Method.Get, Request = get });
            request.Calls.Add(new Call { Id = 9, Method = Method.Put, Request = put.ToByteString(), TimeoutMs = 50 });
            await call.RequestStream.WriteAsync(request);
            await call.RequestStream.CompleteAsync();
            await Task.Delay(time);
            var codes = new Dictionary<ulong, int>();
            while (await call.ResponseStream.MoveNext(CancellationToken.None))
            {
                foreach (var reply in call.ResponseStream.Current.Replies)
                    codes.Add(reply.Id, reply.Code);
            }
            Assert.All(Enumerable.Range(1, 8), id => Assert.Equal(0, codes[(ulong)id]));
            Assert.Equal(codes[9] == 0, (await cluster.KvOf(1).GetAsync(new GetRequest { Key = put.Key })).Found);
            return codes[9] == (int)StatusCode.DeadlineExceeded;
        });
    }

    // A read waits for longer than a test does.
    private static KvCalls CallsOf(ShardLookup lookup, NodeMetrics metrics) => new(
        lookup, new ReadOpener(lookup, TimeProvider.System, waitMax: TimeSpan.FromHours(1)), new ReadThreads(hereMax: 1, threads: 0),
        new KeptSnapshots(TimeProvider.System, TimeSpan.FromMinutes(1)), QueryMemory.For(CallMemory.MebibytesDefault), metrics, TimeProvider.System);

    private static string ReasonOf(Reply reply) => Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Reason;

    private sealed class Requests(params ExchangeRequest[] messages) : IAsyncStreamReader<MessageBytes>
    {
        private int _next;

        public MessageBytes Current { get; private set; } = null!;

        /// <summary>The stream ends like this after its messages.</summary>
        public Task End { get; init; } = Task.CompletedTask;

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (_next == messages.Length)
            {
                await End;
                return false;
            }
            Current = MessageBytes.Rent();
            Current.Append(messages[_next++].ToByteArray());
            return true;
        }
    }

    private sealed class Responses : IServerStreamWriter<MessageBytes>
    {
        public List<Reply> Replies { get; } = [];

        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message) => WriteAsync(message, CancellationToken.None);

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken)
        {
            Replies.AddRange(ExchangeResponse.Parser.ParseFrom(message.Written).Replies);
            message.Return();
            return Task.CompletedTask;
        }
    }
}
