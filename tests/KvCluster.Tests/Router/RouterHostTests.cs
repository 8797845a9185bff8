using System.Diagnostics;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Health.V1;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Router;
using KvCluster.Router.Api;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tests.Client;
using KvCluster.Tests.ServiceDefaults.Security;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Router;

/// <summary>A router in front of nodes, called as any gRPC client would call it.</summary>
public sealed class RouterHostTests : IAsyncLifetime
{
    private FakeCluster _cluster = null!;
    private RouterHost _router = null!;
    private GrpcChannel _channel = null!;
    private Kv.KvClient _kv = null!;

    public async Task InitializeAsync()
    {
        _cluster = await FakeCluster.StartAsync(3, "g", "p");
        _router = await StartAsync("http://127.0.0.1:0");
        _channel = GrpcChannel.ForAddress(_router.Address, new GrpcChannelOptions { MaxReceiveMessageSize = null });
        _kv = new Kv.KvClient(_channel.Calls());
    }

    public async Task DisposeAsync()
    {
        _channel.Dispose();
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    [Fact]
    public async Task UnaryCalls_GoToTheLeaderOfTheirKey()
    {
        foreach (var key in (string[])["a", "h", "q"])
            await _kv.PutAsync(new PutRequest { Key = Utf8(key), Value = Utf8($"of {key}") });
        Assert.All(_cluster.Nodes, node => Assert.Equal([Method.Put], node.CallsAsLeader.Select(call => call.Method)));
        Assert.Equal("of h", (await _kv.GetAsync(new GetRequest { Key = Utf8("h") })).Value.ToStringUtf8());
        Assert.False((await _kv.GetAsync(new GetRequest { Key = Utf8("i") })).Found);
        Assert.True((await _kv.DeleteAsync(new DeleteRequest { Key = Utf8("h") })).Existed);
        Assert.False((await _kv.GetAsync(new GetRequest { Key = Utf8("h") })).Found);
    }

    [Fact]
    public async Task Start_WithoutANodeThatAnswers_LogsWhatItWaitsFor()
    {
        var lines = new LinesLog();
        using var logs = LoggerFactory.Create(log => log.AddProvider(new OneLog(lines)));
        await using var router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = ["http://127.0.0.1:1"] }, new ProcessHealth(), logs,
            CancellationToken.None);
        await Eventually.TrueAsync(
            () => lines.Lines.Any(line =>
                line.StartsWith("Warning: Calls are waiting: it has no shard map yet: http://127.0.0.1:1: ", StringComparison.Ordinal)),
            "the log says what it waits for");
    }

    /// <summary>The first caller of a new router waited until the runtime had compiled what a call needs, a second or more where others started too.</summary>
    [Fact]
    public Task Start_OfAProgram_IsReadyAfterFirstCallsToItself() =>
        Eventually.TrueAsync(() => MakesFirstCallsAsync("http://127.0.0.1:0"), "a router makes its first calls");

    /// <summary>As in a container, where a router listens at all addresses, and its certificate names the Service.</summary>
    [Fact]
    public async Task Start_OfAProgram_WhoseCertificateDoesNotNameItsAddress_MakesItsFirstCalls()
    {
        using var folder = new CertificateFolder();
        using var authority = CertificateFolder.Authority();
        var tls = new ServerTlsOptions
        {
            Files = folder.Issue(authority, "router", "*.example.com"), RequiresClientCertificate = true, HandshakeTimeMax = Eventually.Limit,
        };
        await Eventually.TrueAsync(() => MakesFirstCallsAsync("https://127.0.0.1:0", tls), "a router makes its first calls");
    }

    [Fact]
    public async Task Start_OfAProgram_WhoseFirstCallsFail_IsReadyAndSaysSo()
    {
        var lines = new LinesLog(LogLevel.Information);
        using var logs = LoggerFactory.Create(log => log.AddProvider(new OneLog(lines)));
        var health = new ProcessHealth();
        var damaged = CallStatus.Create(StatusCode.DataLoss, "CORRUPT", "The page is damaged.", "no");
        foreach (var node in _cluster.Nodes)
            node.Script = call => Task.FromResult<Reply?>(new Reply { Id = call.Id, Code = damaged.Code, Status = damaged.ToByteString() });
        await using var router = await StartAsync("http://127.0.0.1:0", health: health, makesFirstCalls: true, logs: logs);
        await Eventually.TrueAsync(() => health.NotReady is null, "the router is ready");
        Assert.Contains(lines.Lines, static line => line.Contains("The first calls, which the router makes to itself, failed", StringComparison.Ordinal));
    }

    [Fact]
    public async Task Put_OfALargeValue_ArrivesUnchanged()
    {
        var value = new byte[8 << 20];
        new Random(1).NextBytes(value);
        await _kv.PutAsync(new PutRequest { Key = Utf8("a"), Value = ByteString.CopyFrom(value) });
        Assert.Equal(value, (await _kv.GetAsync(new GetRequest { Key = Utf8("a") })).Value.ToByteArray());
    }

    [Fact]
    public async Task Put_RefusedByItsLeader_KeepsStatusAndDetails()
    {
        var put = new PutRequest { Key = Utf8("a"), Conditions = { new Condition { Exists = true } } };
        var failure = await Assert.ThrowsAsync<RpcException>(() => _kv.PutAsync(put).ResponseAsync);
        Assert.Equal(StatusCode.FailedPrecondition, failure.StatusCode);
        var info = failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!;
        Assert.Equal("CONDITION_FAILED", info.Reason);
        Assert.Equal("no", info.Metadata["applied"]);
    }

    [Fact]
    public async Task Put_AfterALeaderMoved_NeedsNoRetryByTheCaller()
    {
        _cluster.Lead(1, node: 2);
        await _kv.PutAsync(new PutRequest { Key = Utf8("a") });
        await _cluster.Nodes[1].DisposeAsync();
        _cluster.Lead(1, node: 3);
        await RepeatUnknownAsync(() => _kv.PutAsync(new PutRequest { Key = Utf8("a") }).ResponseAsync);
        Assert.Contains(_cluster.Nodes[2].Calls, call => call.Method == Method.Put);
    }

    [Fact]
    public async Task GetMany_OverShards_AnswersInTheOrderOfTheRequest()
    {
        foreach (var key in (string[])["a", "h", "q"])
            await _kv.PutAsync(new PutRequest { Key = Utf8(key), Value = Utf8($"of {key}") });
        var response = await _kv.GetManyAsync(new GetManyRequest { Keys = { Utf8("q"), Utf8("b"), Utf8("a"), Utf8("h") } });
        Assert.Equal(["of q", "", "of a", "of h"], response.Entries.Select(entry => entry.Value.ToStringUtf8()));
        Assert.Empty((await _kv.GetManyAsync(new GetManyRequest())).Entries);
    }

    [Fact]
    public async Task Write_OfKeysOfDifferentShards_IsRefusedWithoutAskingANode()
    {
        var write = new WriteRequest { Operations = { PutOf("a"), PutOf("z") } };
        var failure = await Assert.ThrowsAsync<RpcException>(() => _kv.WriteAsync(write).ResponseAsync);
        Assert.Equal(StatusCode.FailedPrecondition, failure.StatusCode);
        Assert.Equal("SHARDS_DIFFER", failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason);
        Assert.Equal([1u, 3u], failure.GetRpcStatus()!.GetDetail<RouteHint>()!.Routes.Select(static route => route.Shard));
        Assert.Contains("shards 1 and 3", failure.Status.Detail, StringComparison.Ordinal);
        Assert.All(_cluster.Nodes, node => Assert.Empty(node.Calls));
        await _kv.WriteAsync(new WriteRequest { Operations = { PutOf("a"), PutOf("b") } });
        Assert.Equal(1, _cluster.Applied["b"]);
    }

    [Theory]
    [InlineData(false, 0ul)]
    [InlineData(true, 0ul)]
    [InlineData(false, 7ul)]
    [InlineData(true, 7ul)]
    public async Task Scan_ContinuesFromShardToShard(bool reverse, ulong limit)
    {
        var keys = "abcghipqr".Select(letter => letter.ToString()).ToArray();
        foreach (var key in keys)
            await _kv.PutAsync(new PutRequest { Key = Utf8(key) });
        using var scan = _kv.Scan(new ScanRequest { Reverse = reverse, Limit = limit });
        var found = new List<string>();
        while (await scan.ResponseStream.MoveNext(CancellationToken.None))
        {
            Assert.False(scan.ResponseStream.Current.HasNextStart);
            found.AddRange(scan.ResponseStream.Current.Entries.Select(entry => entry.Key.ToStringUtf8()));
        }
        var expected = reverse ? keys.Reverse() : keys;
        Assert.Equal(limit == 0 ? expected : expected.Take((int)limit), found);
    }

    // The token was replaced without a word, so whoever went on with one had entries of two snapshots.
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Scan_WithASnapshotToken_IsRefusedWithoutAskingANode(bool oneSnapshot)
    {
        await _kv.PutAsync(new PutRequest { Key = Utf8("a") });
        using var scan = _kv.Scan(new ScanRequest { Prefix = Utf8("a"), Snapshot = Utf8("jjjjjjjj"), OneSnapshot = oneSnapshot });
        await Refusal.ExpectAsync(() => scan.ResponseStream.MoveNext(CancellationToken.None), StatusCode.Aborted, "SNAPSHOT_TOO_OLD");
        Assert.All(_cluster.Nodes, node => Assert.Empty(node.Scans));
        using var other = _kv.Scan(new ScanRequest { Prefix = Utf8("a"), OneSnapshot = oneSnapshot });
        Assert.True(await other.ResponseStream.MoveNext(CancellationToken.None));
        Assert.True(other.ResponseStream.Current.Snapshot.IsEmpty);
    }

    [Fact]
    public async Task Watch_AfterTwoPositionsOfOneShard_IsRefused()
    {
        var position = new Position { Shard = 1, Etag = new V1.Etag { Epoch = 1 } };
        using var watch = _kv.Watch(new WatchRequest { After = { position, position } });
        await Refusal.ExpectAsync(
            () => watch.ResponseStream.MoveNext(CancellationToken.None), StatusCode.InvalidArgument, "BAD_REQUEST", "one position of each shard");
        using var other = _kv.Watch(
            new WatchRequest { Initial = true, InitialAfter = { new InitialProgress { Position = position }, new InitialProgress { Position = position } } });
        await Refusal.ExpectAsync(
            () => other.ResponseStream.MoveNext(CancellationToken.None), StatusCode.InvalidArgument, "BAD_REQUEST", "one position of each shard");
    }

    [Fact]
    public async Task Exchange_AnswersEachCallByItsId()
    {
        using var stream = _kv.Exchange();
        var request = new ExchangeRequest();
        for (var number = 0; number < 300; number++)
        {
            var key = Utf8($"{"ahq"[number % 3]}{number}");
            request.Calls.Add(new Call { Id = (ulong)number + 1, Method = Method.Put, Request = new PutRequest { Key = key, Value = key }.ToByteString() });
        }
        request.Calls.Add(new Call { Id = 1_000, Method = Method.Unspecified });
        request.Calls.Add(new Call { Id = 1_001, Method = Method.Get, Request = ByteString.CopyFrom(0xFF, 0xFF) });
        // The last key below a bound that is longer than any key could not be found, and that ended the stream with all its calls.
        var below = new ListRequest { End = ByteString.CopyFrom([.. Enumerable.Repeat((byte)'z', KvLimits.KeyBytesMax), 1]), Reverse = true, Limit = 1 };
        request.Calls.Add(new Call { Id = 1_002, Method = Method.List, Request = below.ToByteString() });
        await stream.RequestStream.WriteAsync(request);
        await stream.RequestStream.CompleteAsync();
        var codes = new Dictionary<ulong, int>();
        while (await stream.ResponseStream.MoveNext(CancellationToken.None))
        {
            foreach (var reply in stream.ResponseStream.Current.Replies)
                codes.Add(reply.Id, reply.Code);
        }
        Assert.Equal(303, codes.Count);
        Assert.Equal((int)StatusCode.InvalidArgument, codes[1_000]);
        Assert.Equal((int)StatusCode.InvalidArgument, codes[1_001]);
        Assert.Equal(0, codes[1_002]);
        Assert.Equal(301, codes.Values.Count(code => code == 0));
        Assert.Equal(300, _cluster.Applied.Count);
    }

    // The router asked one node after the other until the very deadline, so the caller had the status DEADLINE_EXCEEDED and no details.
    [Fact]
    public async Task Get_OfAPositionThatNoNodeHas_IsToldSoBeforeTheDeadline()
    {
        RefuseAsBehind();
        var get = new GetRequest { Key = Utf8("a"), Read = new ReadOptions { Mode = ReadMode.Session } };
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(1), async time =>
        {
            var failure = await Assert.ThrowsAsync<RpcException>(() => _kv.GetAsync(get, deadline: DateTime.UtcNow + time).ResponseAsync);
            return failure.GetRpcStatus()?.GetDetail<Google.Rpc.ErrorInfo>()?.Reason == "REPLICA_BEHIND";
        });
    }

    [Fact]
    public async Task Exchange_WithAReadOfAPositionThatNoNodeHas_IsToldSoBeforeItsTimeout()
    {
        RefuseAsBehind();
        using var stream = _kv.Exchange();
        var get = new GetRequest { Key = Utf8("a"), Read = new ReadOptions { Mode = ReadMode.Session } }.ToByteString();
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(1), async time =>
        {
            var began = Stopwatch.GetTimestamp();
            await stream.RequestStream.WriteAsync(
                new ExchangeRequest { Calls = { new Call { Id = 1, Method = Method.Get, Request = get, TimeoutMs = (uint)time.TotalMilliseconds } } });
            Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            var refusal = Google.Rpc.Status.Parser.ParseFrom(Assert.Single(stream.ResponseStream.Current.Replies).Status);
            return Stopwatch.GetElapsedTime(began) < time && refusal.GetDetail<Google.Rpc.ErrorInfo>()?.Reason == "REPLICA_BEHIND";
        });
    }

    /// <summary>
    /// The router stopped reading once sixteen reads, or 20 MiB of writes, of one shard were stuck. Calls of all other shards waited behind them.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Exchange_WithCallsOfAStuckShard_ServesOthersAndObeysCancels(bool areLargeWrites)
    {
        var stuck = _cluster.Nodes[0];
        stuck.Script = static _ => Task.FromResult<Reply?>(FakeNode.Silence);
        using var stream = _kv.Exchange();
        var (method, message) = areLargeWrites
            ? (Method.Put, new PutRequest { Key = Utf8("a"), Value = UnsafeByteOperations.UnsafeWrap(new byte[8 << 20]) }.ToByteString())
            : (Method.Get, new GetRequest { Key = Utf8("a") }.ToByteString());
        var count = areLargeWrites ? 4ul : 100;
        for (var id = 1ul; id <= count; id++)
            await stream.RequestStream.WriteAsync(
                new ExchangeRequest { Calls = { new Call { Id = id, Method = method, Request = message, TimeoutMs = 600_000 } } });
        var other = new Call { Id = 1_000, Method = Method.Get, Request = new GetRequest { Key = Utf8("q") }.ToByteString() };
        await stream.RequestStream.WriteAsync(new ExchangeRequest { Calls = { other } });
        var replies = new Dictionary<ulong, Reply>();
        await ReadUntilAsync(stream, replies, () => replies.ContainsKey(other.Id));
        Assert.Equal(0, replies[other.Id].Code);
        // A stuck call is either in progress or was refused.
        Assert.All(replies.Values.Where(reply => reply.Id != other.Id), reply => Assert.Equal((int)StatusCode.Unavailable, reply.Code));
        await Eventually.TrueAsync(() => !stuck.Calls.IsEmpty, "some of the calls are at the node");
        await stream.RequestStream.WriteAsync(new ExchangeRequest { Cancelled = { Enumerable.Range(1, (int)count).Select(id => (ulong)id), 77_777 } });
        await ReadUntilAsync(stream, replies, () => replies.Count == (int)count + 1);
        // Changes that were sent may have been applied.
        var cancelled = replies.Values.Where(reply => reply.Code == (int)(areLargeWrites ? StatusCode.Unknown : StatusCode.Cancelled)).ToList();
        Assert.All(cancelled, reply => Assert.Equal(
            areLargeWrites ? "unknown" : "no", Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<Google.Rpc.ErrorInfo>()!.Metadata["applied"]));
        Assert.True(cancelled.Count >= (areLargeWrites ? 2 : 100));
        // Calls sent over another connection do not count, if a stalled machine ended the first one.
        await Eventually.TrueAsync(() => !stuck.Cancelled.IsEmpty, "the node hears of the cancellations");
        Assert.Subset(stuck.Calls.Select(call => call.Id).ToHashSet(), stuck.Cancelled.ToHashSet());
        // Their places are free, so the shard is served as soon as it answers.
        stuck.Script = null;
        await stream.RequestStream.WriteAsync(new ExchangeRequest { Calls = { new Call { Id = 2_000, Method = method, Request = message } } });
        await ReadUntilAsync(stream, replies, () => replies.ContainsKey(2_000));
        Assert.Equal(0, replies[2_000].Code);
    }

    /// <summary>
    /// A new router did not know the shard of any call. Reads that arrived before its first map waited as if for one shard, all behind the stuck
    /// ones. When the map arrived, the reads of shard 0 were requeued in their own place for ever.
    /// </summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    public async Task Exchange_WithReadsReceivedBeforeTheMap_ServesEachByItsShard(uint firstShard)
    {
        const int Stuck = 60;
        var map = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var cluster = await FakeCluster.StartAsync(3, firstShard, "g", "p");
        foreach (var node in cluster.Nodes)
            node.MapMayGo = map.Task;
        cluster.Nodes[0].Script = static _ => Task.FromResult<Reply?>(FakeNode.Silence);
        await using var router = await StartAsync("http://127.0.0.1:0", cluster);
        using var channel = GrpcChannel.ForAddress(router.Address);
        using var stream = new Kv.KvClient(channel.Calls()).Exchange();
        var request = new ExchangeRequest();
        for (var id = 1ul; id <= Stuck + 1; id++)
            request.Calls.Add(new Call { Id = id, Method = Method.Get, Request = new GetRequest { Key = Utf8(id <= Stuck ? "a" : "q") }.ToByteString() });
        request.Calls.Add(new Call { Id = 100, Method = Method.Unspecified });
        await stream.RequestStream.WriteAsync(request);
        var replies = new Dictionary<ulong, Reply>();
        await ReadUntilAsync(stream, replies, () => replies.ContainsKey(100));
        map.SetResult();
        await ReadUntilAsync(stream, replies, () => replies.ContainsKey(Stuck + 1));
        Assert.Equal((2, 0), (replies.Count, replies[Stuck + 1].Code));
        await stream.RequestStream.WriteAsync(new ExchangeRequest { Cancelled = { Enumerable.Range(1, Stuck).Select(id => (ulong)id) } });
        await ReadUntilAsync(stream, replies, () => replies.Count == Stuck + 2);
    }

    /// <summary>
    /// The router fetched what five connections asked for, a hundred values of 8 MiB each, over streams that all callers share. No other call was
    /// answered for ten seconds, nor for ten more after those callers were gone. With fifty connections it was 84 seconds.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Gets_OfManyLargeValues_AreFetchedAFewAtATimeAndNotForCallersThatAreGone(bool byExchange)
    {
        const int Connections = 3;
        const int Asked = 20;
        await _kv.PutAsync(new PutRequest { Key = Utf8("a"), Value = UnsafeByteOperations.UnsafeWrap(new byte[8 << 20]) });
        await _kv.PutAsync(new PutRequest { Key = Utf8("b"), Value = Utf8("small") });
        var brought = 0;
        var small = 0;
        var release = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        // The connections to the nodes are slow: nothing large arrives before the end.
        foreach (var node in _cluster.Nodes)
        {
            node.Script = async call =>
            {
                if (call.Method != Method.Get || !GetRequest.Parser.ParseFrom(call.Request).Key.Equals(Utf8("a")))
                    return null;
                if (call.ReplyBytesMax == CallRouter.SmallReplyBytes)
                {
                    Interlocked.Increment(ref small);
                    return null;
                }
                Interlocked.Increment(ref brought);
                await release.Task;
                return null;
            };
        }
        // By its leader, so that each is one attempt: one that any replica may answer is asked again at another after a third of its time.
        var large = new GetRequest { Key = Utf8("a") };
        var began = Stopwatch.GetTimestamp();
        var greedy = Enumerable.Range(0, Connections)
            .Select(_ => GrpcChannel.ForAddress(_router.Address, new GrpcChannelOptions { MaxReceiveMessageSize = null })).ToList();
        var calls = new List<IDisposable>();
        foreach (var channel in greedy)
        {
            var kv = new Kv.KvClient(channel.Calls());
            if (!byExchange)
            {
                calls.AddRange(Enumerable.Range(0, Asked).Select(_ => kv.GetAsync(large)));
                continue;
            }
            var exchange = kv.Exchange();
            calls.Add(exchange);
            await exchange.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls = { Enumerable.Range(1, Asked).Select(id => new Call { Id = (ulong)id, Method = Method.Get, Request = large.ToByteString() }) }
            });
        }
        // An exchange starts no more reads before it knows the size of its answers.
        var expected = Connections * (byExchange ? 16 : Asked);
        await Eventually.TrueAsync(() => Volatile.Read(ref small) + Volatile.Read(ref brought) >= expected, "the router asks for the sizes of all");
        await Eventually.TrueAsync(() => Volatile.Read(ref brought) >= 3, "the router fetches the first");
        for (var read = 0; read < 20; read++)
            Assert.Equal("small", (await _kv.GetAsync(new GetRequest { Key = Utf8("b") }, deadline: DateTime.UtcNow + Eventually.Limit)).Value.ToStringUtf8());
        // 32 MiB, with the bytes around each value. On a busy machine the first may have given their places to the next.
        var fetched = Volatile.Read(ref brought);
        var rounds = 1 + (int)(Stopwatch.GetElapsedTime(began).TotalMilliseconds / LargeReplies.MaxMs);
        Assert.InRange(fetched, 3, 3 * rounds);
        foreach (var call in calls)
            call.Dispose();
        foreach (var channel in greedy)
            channel.Dispose();
        await Eventually.TrueAsync(() => _router.LargeReads.Waiting == 0, "the router hears that they are gone");
        var before = Volatile.Read(ref brought);
        release.SetResult();
        Assert.Equal(8 << 20, (await _kv.GetAsync(large, deadline: DateTime.UtcNow + Eventually.Limit)).Value.Length);
        // Those that were already being fetched, and this one.
        Assert.Equal(before + 1, Volatile.Read(ref brought));
    }

    private static async Task ReadUntilAsync(
        AsyncDuplexStreamingCall<ExchangeRequest, ExchangeResponse> stream, Dictionary<ulong, Reply> replies, Func<bool> isThere)
    {
        while (!isThere())
        {
            Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            foreach (var reply in stream.ResponseStream.Current.Replies)
                replies.Add(reply.Id, reply);
        }
    }

    [Fact]
    public async Task Exchange_WithMalformedBytes_EndsWithAStatus()
    {
        var method = new Method<byte[], byte[]>(
            MethodType.DuplexStreaming, "kvcluster.v1.Kv", "Exchange", Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes),
            Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes));
        using var stream = _channel.CreateCallInvoker().AsyncDuplexStreamingCall(method, null, new CallOptions());
        await stream.RequestStream.WriteAsync([0xFF, 0xFF, 0xFF]);
        var failure = await Assert.ThrowsAsync<RpcException>(() => stream.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal((StatusCode.InvalidArgument, MalformedMessageException.StreamText), (failure.StatusCode, failure.Status.Detail));
    }

    /// <summary>
    /// The texts were those of the library that could not parse the bytes, and did not say what was applied. For operators' calls the status was
    /// INTERNAL, too.
    /// </summary>
    [Theory]
    [InlineData("Put")]
    [InlineData("GetMany")]
    [InlineData("Write")]
    [InlineData("Scan")]
    [InlineData("Replace", "kvcluster.admin.v1.Admin")]
    [InlineData("Place", "kvcluster.admin.v1.Admin")]
    [InlineData("GetStatus", "kvcluster.v1.Cluster")]
    public async Task Call_WithMalformedBytes_IsRefusedWithOurOwnText(string name, string service = "kvcluster.v1.Kv")
    {
        var bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);
        var isScan = name == "Scan";
        var method = new Method<byte[], byte[]>(isScan ? MethodType.ServerStreaming : MethodType.Unary, service, name, bytes, bytes);
        foreach (var garbage in (byte[][])[[0xFF, 0xFF, 0xFF], [0x0A, 0x7F, 0x01]])
        {
            var failure = await Assert.ThrowsAsync<RpcException>(async () =>
            {
                if (isScan)
                    await _channel.CreateCallInvoker().AsyncServerStreamingCall(method, null, new CallOptions(), garbage)
                        .ResponseStream.MoveNext(CancellationToken.None);
                else
                    await _channel.CreateCallInvoker().AsyncUnaryCall(method, null, new CallOptions(), garbage);
            });
            Assert.Equal((StatusCode.InvalidArgument, MalformedMessageException.Text), (failure.StatusCode, failure.Status.Detail));
            Assert.Equal("BAD_REQUEST", failure.GetRpcStatus()?.GetDetail<Google.Rpc.ErrorInfo>()?.Reason);
        }
    }

    /// <summary>
    /// Only a budget that such calls do not use bounded them. A health check with a name of 17 MiB stayed in memory for as long as its watch.
    /// </summary>
    [Fact]
    public async Task Calls_LargerThanTheirMethodsNeed_AreRefused()
    {
        var health = new Health.HealthClient(_channel.Calls());
        Task[] calls =
        [
            health.CheckAsync(new HealthCheckRequest { Service = new string('a', RequestLimits.QuestionBytesMax) }).ResponseAsync,
            health.Watch(new HealthCheckRequest { Service = new string('a', RequestLimits.QuestionBytesMax) }).ResponseStream.MoveNext(CancellationToken.None),
            new Admin.V1.Admin.AdminClient(_channel.Calls())
                .QuarantineAsync(new QuarantineRequest { Reason = new string('a', RequestLimits.OperatorBytesMax) }).ResponseAsync,
            _kv.GetAsync(new GetRequest { Key = UnsafeByteOperations.UnsafeWrap(new byte[RequestLimits.ReadBytesMax]) }).ResponseAsync,
        ];
        foreach (var call in calls)
        {
            var failure = await Assert.ThrowsAsync<RpcException>(() => call);
            Assert.Equal((StatusCode.InvalidArgument, "BAD_REQUEST"), (failure.StatusCode, failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason));
        }
    }

    /// <summary>A request id belongs to one shard. Such a range was deleted in its first shard, and answered as done.</summary>
    [Fact]
    public async Task DeleteRange_WithARequestIdOverTwoShards_IsRefused()
    {
        var request = new DeleteRangeRequest
        {
            Start = Utf8("a"), End = Utf8("zz"), RequestId = new RequestId { Session = ByteString.CopyFrom(new byte[16]), Sequence = 1, LowestOpen = 1 }
        };
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await _kv.DeleteRangeAsync(request));
        Assert.Equal((StatusCode.FailedPrecondition, "SHARDS_DIFFER"), (failure.StatusCode, failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason));
        Assert.Contains("shards 1 and 2", failure.Status.Detail, StringComparison.Ordinal);
        request.End = ByteString.Empty;
        failure = await Assert.ThrowsAsync<RpcException>(async () => await _kv.DeleteRangeAsync(request));
        Assert.Equal("SHARDS_DIFFER", failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason);
        Assert.All(_cluster.Nodes, node => Assert.Empty(node.Calls));
    }

    [Fact]
    public async Task KvClient_LearnsTheNodesFromTheRouter()
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = [_router.Address], Timeout = Eventually.Limit });
        await client.PutAsync("a", "1");
        await client.PutAsync("q", "1");
        Assert.Single(_cluster.Nodes[0].CallsAsLeader);
        Assert.Single(_cluster.Nodes[2].CallsAsLeader);
        await using var gateway = new KvClient(new KvClientOptions { Endpoints = [_router.Address], Gateway = true, Timeout = Eventually.Limit });
        Assert.Equal("1"u8.ToArray(), (await gateway.GetAsync("q")).Value.ToArray());
        Assert.Equal(3, (await gateway.Admin.GetStatusAsync()).Nodes.Count);
        Assert.Equal(2, await gateway.CountAsync(default));
    }

    [Fact]
    public async Task Status_ListsADeadNodeWithItsError()
    {
        await _kv.PutAsync(new PutRequest { Key = Utf8("a") });
        await _cluster.Nodes[2].DisposeAsync();
        // The others have an error too if they do not answer within seconds, as where the machine stalls.
        await Eventually.TrueAsync(async () =>
        {
            var status = await new V1.Cluster.ClusterClient(_channel.Calls()).GetStatusAsync(
                new GetStatusRequest(), deadline: DateTime.UtcNow + Eventually.Limit);
            Assert.Equal(3, status.Nodes.Count);
            Assert.NotEmpty(status.Nodes.Single(static node => node.Node == 3).Error);
            return status.Nodes.Count(static node => node.Error.Length > 0) == 1;
        }, "only the dead node has an error");
    }

    [Fact]
    public async Task Health_WithAShardMap_IsServing()
    {
        var health = new Health.HealthClient(_channel.Calls());
        await Eventually.TrueAsync(
            async () => (await health.CheckAsync(new HealthCheckRequest())).Status == HealthCheckResponse.Types.ServingStatus.Serving, "the router serves");
    }

    /// <summary>It was serving as soon as it listened, when every call waited for a shard map.</summary>
    [Fact]
    public async Task Health_WithoutAShardMap_IsNotServing()
    {
        await using var lonely = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = ["http://127.0.0.1:1"] },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(lonely.Address);
        var health = await new Health.HealthClient(channel.Calls()).CheckAsync(new HealthCheckRequest());
        Assert.Equal(HealthCheckResponse.Types.ServingStatus.NotServing, health.Status);
    }

    [Fact]
    public async Task Call_BeforeAnyNodeAnswers_WaitsUntilItsDeadline()
    {
        await using var lonely = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = ["http://127.0.0.1:1"] },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(lonely.Address);
        var failure = await Assert.ThrowsAsync<RpcException>(
            () => new Kv.KvClient(channel.Calls()).PutAsync(new PutRequest { Key = Utf8("a") }, deadline: DateTime.UtcNow.AddMilliseconds(300)).ResponseAsync);
        Assert.Contains(failure.StatusCode, (StatusCode[])[StatusCode.Unavailable, StatusCode.DeadlineExceeded]);
    }

    // The scan waited for longer than its caller.
    [Fact]
    public async Task Scan_BeforeAnyNodeAnswers_SaysWhyBeforeItsDeadline()
    {
        await using var lonely = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = ["http://127.0.0.1:1"], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(lonely.Address);
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(1), async time =>
        {
            using var scan = new Kv.KvClient(channel.Calls()).Scan(new ScanRequest(), deadline: DateTime.UtcNow + time);
            var failure = await Assert.ThrowsAsync<RpcException>(() => scan.ResponseStream.MoveNext(CancellationToken.None));
            return failure.GetRpcStatus()?.GetDetail<Google.Rpc.ErrorInfo>()?.Reason == "NO_LEADER";
        });
    }

    [Fact]
    public async Task Start_OnAPortInUse_ThrowsAnIOException() =>
        await Assert.ThrowsAnyAsync<IOException>(() => StartAsync(_router.Address));

    // As nodes do: a little before the deadline of the attempt.
    private void RefuseAsBehind()
    {
        foreach (var node in _cluster.Nodes)
        {
            node.Script = async call =>
            {
                await Task.Delay(TimeSpan.FromMilliseconds(call.TimeoutMs * 0.9));
                return FakeNode.Refuse(call, StatusCode.DeadlineExceeded, "REPLICA_BEHIND");
            };
        }
    }

    private static Operation PutOf(string key) => new() { Put = new PutOperation { Key = Utf8(key) } };

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);

    // The outcome of calls in flight to a node that died is unknown. The test repeats them, as a caller would.
    private static async Task RepeatUnknownAsync(Func<Task> call)
    {
        for (var attempt = 0; ; attempt++)
        {
            try
            {
                await call();
                return;
            }
            catch (RpcException failure) when (attempt < 3 && failure.GetRpcStatus()?.GetDetail<Google.Rpc.ErrorInfo>()?.Reason == "OUTCOME_UNKNOWN")
            {
                await Task.Delay(10);
            }
        }
    }

    private Task<RouterHost> StartAsync(
        string listen, FakeCluster? cluster = null, ProcessHealth? health = null, bool makesFirstCalls = false, ILoggerFactory? logs = null,
        ServerTlsOptions? tls = null) =>
        RouterHost.StartAsync(
            new RouterOptions
            {
                Listen = listen, ServeAdmin = true, Seeds = [(cluster ?? _cluster).Nodes[1].Address], Timeout = Eventually.Limit,
                MakesFirstCalls = makesFirstCalls, Tls = tls,
            },
            health ?? new ProcessHealth(), logs ?? NullLoggerFactory.Instance, CancellationToken.None);

    // False if a call failed, which it does where the machine stalls for seconds. The router is ready without it then.
    private async Task<bool> MakesFirstCallsAsync(string listen, ServerTlsOptions? tls = null)
    {
        var held = new TaskCompletionSource<Reply?>(TaskCreationOptions.RunContinuationsAsynchronously);
        foreach (var node in _cluster.Nodes)
        {
            node.Script = _ => held.Task;
            node.Calls.Clear();
        }
        var lines = new LinesLog(LogLevel.Information);
        using var logs = LoggerFactory.Create(log => log.AddProvider(new OneLog(lines)));
        var health = new ProcessHealth();
        await using var router = await StartAsync(listen, health: health, makesFirstCalls: true, logs: logs, tls: tls);
        await Eventually.TrueAsync(
            () => health.NotReady is null || _cluster.Nodes.Exists(static node => !node.Calls.IsEmpty), "a first call arrives at a node");
        var waits = health.NotReady == "it makes its first calls";
        held.SetResult(null);
        await Eventually.TrueAsync(() => health.NotReady is null, "the router is ready");
        var fails = lines.Lines.Any(static line => line.Contains("The first calls", StringComparison.Ordinal));
        var calls = _cluster.Nodes.SelectMany(static node => node.CallsAsLeader).Select(static call => call.Method);
        return waits && !fails && calls.SequenceEqual([Method.Get, Method.Get]);
    }

    private sealed class OneLog(ILogger log) : ILoggerProvider
    {
        public ILogger CreateLogger(string categoryName) => log;

        public void Dispose()
        {
        }
    }
}
