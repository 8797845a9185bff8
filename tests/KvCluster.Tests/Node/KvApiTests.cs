using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Node;

/// <summary>The service Kv as its callers see it: one node, and two shards divided at "m".</summary>
public sealed class KvApiTests(KvApiTests.OneNode fixture) : IClassFixture<KvApiTests.OneNode>
{
    private readonly Kv.KvClient _kv = fixture.Cluster.KvOf(1);
    private readonly string _prefix = $"{Guid.NewGuid():N}/";

    [Fact]
    public async Task Get_AfterPut_GivesValueAndEtag()
    {
        var put = await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("v") });
        var got = await _kv.GetAsync(new GetRequest { Key = Key("k") });
        Assert.True(got.Found);
        Assert.Equal(Bytes("v"), got.Value);
        Assert.Equal(put.Position.Etag, got.Etag);
        Assert.Equal(ShardOf(_prefix), got.Position.Shard);
        Assert.True(Compare(got.Position.Etag, put.Position.Etag) >= 0);
    }

    /// <summary>Operators' calls ended with INTERNAL and the text of the library that could not parse the bytes, as if the node had failed.</summary>
    [Theory]
    [InlineData("kvcluster.v1.Kv", "Put")]
    [InlineData("kvcluster.admin.v1.Admin", "Quarantine")]
    [InlineData("kvcluster.admin.v1.Admin", "Transfer")]
    [InlineData("kvcluster.v1.Cluster", "GetStatus")]
    [InlineData("grpc.health.v1.Health", "Check")]
    public async Task Call_WithMalformedBytes_IsRefusedWithOurOwnText(string service, string name)
    {
        var bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);
        var method = new Method<byte[], byte[]>(MethodType.Unary, service, name, bytes, bytes);
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await fixture.Cluster.ChannelOf(1).CreateCallInvoker().AsyncUnaryCall(method, null, new CallOptions(), [0xFF, 0xFF, 0xFF]));
        Assert.Equal((StatusCode.InvalidArgument, MalformedMessageException.Text), (failure.StatusCode, failure.Status.Detail));
        var info = failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!;
        Assert.Equal(("BAD_REQUEST", "no"), (info.Reason, info.Metadata["applied"]));
    }

    [Fact]
    public async Task Get_OfAnAbsentKey_IsNotFound()
    {
        var got = await _kv.GetAsync(new GetRequest { Key = Key("absent") });
        Assert.False(got.Found);
        Assert.Null(got.Etag);
        Assert.NotNull(got.Position.Etag);
    }

    [Fact]
    public async Task Get_OfAnEmptyValue_IsFound()
    {
        await _kv.PutAsync(new PutRequest { Key = Key("k") });
        var got = await _kv.GetAsync(new GetRequest { Key = Key("k") });
        Assert.True(got.Found);
        Assert.True(got.Value.IsEmpty);
    }

    [Fact]
    public async Task Put_AfterPut_HasAGreaterEtag()
    {
        var first = await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("1") });
        var second = await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("2") });
        Assert.True(Compare(second.Position.Etag, first.Position.Etag) > 0);
    }

    [Fact]
    public async Task Delete_ReportsWhetherTheKeyExisted()
    {
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("v") });
        Assert.True((await _kv.DeleteAsync(new DeleteRequest { Key = Key("k") })).Existed);
        Assert.False((await _kv.DeleteAsync(new DeleteRequest { Key = Key("k") })).Existed);
        Assert.False((await _kv.GetAsync(new GetRequest { Key = Key("k") })).Found);
    }

    [Fact]
    public async Task Put_WithConditions_AppliesOnlyWhenAllHold()
    {
        var key = Key("k");
        var absent = new Condition { Exists = false };
        var first = await _kv.PutAsync(new PutRequest { Key = key, Value = Bytes("1"), Conditions = { absent } });
        await RefusedAsync(
            () => _kv.PutAsync(new PutRequest { Key = key, Value = Bytes("x"), Conditions = { absent } }), StatusCode.FailedPrecondition, "CONDITION_FAILED");
        var second = await _kv.PutAsync(new PutRequest
        {
            Key = key,
            Value = Bytes("2"),
            Conditions = { new Condition { EtagEquals = first.Position.Etag }, new Condition { ValueEquals = Bytes("1") }, new Condition { Exists = true } },
        });
        var refused = await RefusedAsync(
            () => _kv.PutAsync(new PutRequest
            {
                Key = key, Value = Bytes("x"), Conditions = { new Condition { Exists = true }, new Condition { EtagEquals = first.Position.Etag } }
            }),
            StatusCode.FailedPrecondition,
            "CONDITION_FAILED");
        Assert.Equal("1", refused.Metadata["condition"]);
        Assert.Equal("no", refused.Metadata["applied"]);
        Assert.Equal(ShardOf(_prefix).ToString(System.Globalization.CultureInfo.InvariantCulture), refused.Metadata["shard"]);
        Assert.True(Etag.Parse(refused.Metadata["etag"]) >= new Etag(second.Position.Etag.Epoch, second.Position.Etag.Change));
        Assert.Equal(Bytes("2"), (await _kv.GetAsync(new GetRequest { Key = key })).Value);
    }

    [Fact]
    public async Task Write_IsAllOrNothing()
    {
        await _kv.PutAsync(new PutRequest { Key = Key("old"), Value = Bytes("v") });
        var write = new WriteRequest
        {
            Conditions = { new Condition { Key = Key("guard"), Exists = false } },
            Operations =
            {
                new Operation { Put = new PutOperation { Key = Key("a"), Value = Bytes("1") } },
                new Operation { Put = new PutOperation { Key = Key("b"), Value = Bytes("2") } },
                new Operation { Delete = new DeleteOperation { Key = Key("old") } },
            },
        };
        var written = await _kv.WriteAsync(write);
        var got = await _kv.GetManyAsync(new GetManyRequest { Keys = { Key("a"), Key("b"), Key("old") } });
        Assert.Equal([true, true, false], got.Entries.Select(entry => entry.Found));
        Assert.Equal(written.Position.Etag.Change - 2, got.Entries[0].Etag.Change);

        await _kv.PutAsync(new PutRequest { Key = Key("guard"), Value = Bytes("v") });
        write.Operations[0].Put.Value = Bytes("changed");
        await RefusedAsync(() => _kv.WriteAsync(write), StatusCode.FailedPrecondition, "CONDITION_FAILED");
        Assert.Equal(Bytes("1"), (await _kv.GetAsync(new GetRequest { Key = Key("a") })).Value);
    }

    [Fact]
    public async Task Limits_Exceeded_EachHaveTheirOwnReason()
    {
        var longKey = ByteString.CopyFrom(new byte[2049]);
        var largeValue = UnsafeByteOperations.UnsafeWrap(new byte[(8 << 20) + 1]);
        var half = UnsafeByteOperations.UnsafeWrap(new byte[8 << 20]);
        await RefusedAsync(() => _kv.GetAsync(new GetRequest()), StatusCode.InvalidArgument, "KEY_EMPTY");
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Value = Bytes("v") }), StatusCode.InvalidArgument, "KEY_EMPTY");
        await RefusedAsync(() => _kv.GetAsync(new GetRequest { Key = longKey }), StatusCode.InvalidArgument, "KEY_TOO_LONG");
        await RefusedAsync(() => _kv.DeleteAsync(new DeleteRequest { Key = longKey }), StatusCode.InvalidArgument, "KEY_TOO_LONG");
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = Key("k"), Value = largeValue }), StatusCode.InvalidArgument, "VALUE_TOO_LARGE");
        await RefusedAsync(
            () => _kv.WriteAsync(new WriteRequest { Operations = { Put("a", half), Put("b", half) } }), StatusCode.InvalidArgument, "WRITE_TOO_LARGE");
        await RefusedAsync(
            () => _kv.WriteAsync(new WriteRequest { Operations = { Enumerable.Repeat(Put("a", ByteString.Empty), 10_001) } }), StatusCode.InvalidArgument,
            "TOO_MANY_OPERATIONS");
        await RefusedAsync(
            () => _kv.GetManyAsync(new GetManyRequest { Keys = { Enumerable.Repeat(Key("a"), 10_001) } }), StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS");
        await RefusedAsync(() => _kv.GetManyAsync(new GetManyRequest { Keys = { Bytes("a"), Bytes("z") } }), StatusCode.FailedPrecondition, "SHARDS_DIFFER");
        await RefusedAsync(() => _kv.WriteAsync(new WriteRequest { Conditions = { new Condition { Key = Bytes("z"), Exists = true } },
            Operations = { new Operation { Delete = new DeleteOperation { Key = Bytes("a") } } } }), StatusCode.FailedPrecondition, "SHARDS_DIFFER");
        await RefusedAsync(() => _kv.WriteAsync(new WriteRequest()), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = Key("k"), Conditions = { new Condition() } }), StatusCode.InvalidArgument, "BAD_REQUEST");
    }

    [Fact]
    public async Task Put_OfTheLargestValue_IsReadBack()
    {
        var value = new byte[8 << 20];
        new Random(1).NextBytes(value);
        await _kv.PutAsync(new PutRequest { Key = Key("large"), Value = ByteString.CopyFrom(value) });
        Assert.Equal(value, (await _kv.GetAsync(new GetRequest { Key = Key("large") })).Value.ToByteArray());
    }

    [Fact]
    public async Task Scan_ForwardAndReverse_GivesTheRangeInOrder()
    {
        foreach (var name in (string[])["b", "a", "c", "d"])
            await _kv.PutAsync(new PutRequest { Key = Key(name), Value = Bytes(name) });
        Assert.Equal(["a", "b", "c", "d"], await ScanAsync(new ScanRequest { Prefix = Bytes(_prefix) }));
        Assert.Equal(["d", "c", "b", "a"], await ScanAsync(new ScanRequest { Prefix = Bytes(_prefix), Reverse = true }));
        Assert.Equal(["b", "c"], await ScanAsync(new ScanRequest { Start = Key("b"), End = Key("d") }));
        Assert.Equal(["c", "b"], await ScanAsync(new ScanRequest { Start = Key("b"), End = Key("d"), Reverse = true }));
        Assert.Equal(["a", "b"], await ScanAsync(new ScanRequest { Prefix = Bytes(_prefix), Limit = 2 }));
        Assert.Equal(["c", "d"], await ScanAsync(new ScanRequest { Prefix = Bytes(_prefix), ResumeAfter = Key("b") }));
        Assert.Equal(["b", "a"], await ScanAsync(new ScanRequest { Prefix = Bytes(_prefix), ResumeAfter = Key("c"), Reverse = true }));
        Assert.Equal([], await ScanAsync(new ScanRequest { Prefix = Key("nothing") }));
    }

    [Fact]
    public async Task Scan_BeyondTheShardsEnd_ReportsWhereItContinues()
    {
        var pages = await PagesAsync(new ScanRequest { Start = Bytes("k"), End = Bytes("p"), KeysOnly = true });
        Assert.Equal(Bytes("m"), pages[^1].NextStart);
        Assert.All(pages.SkipLast(1), page => Assert.False(page.HasNextStart));
        Assert.False((await PagesAsync(new ScanRequest { Start = Bytes("m"), End = Bytes("p") }))[^1].HasNextStart);
        Assert.Equal(Bytes("m"), (await PagesAsync(new ScanRequest { Start = Bytes("k"), End = Bytes("p"), Reverse = true }))[^1].NextStart);
        Assert.False((await PagesAsync(new ScanRequest { Start = Bytes("k"), End = Bytes("m"), Reverse = true }))[^1].HasNextStart);
    }

    [Fact]
    public async Task Scan_OfManyPages_IsOfOneSnapshot()
    {
        var operations = Enumerable.Range(0, 2_000).Select(index => Put($"{index:0000}", UnsafeByteOperations.UnsafeWrap(new byte[1_000])));
        await _kv.WriteAsync(new WriteRequest { Operations = { operations } });
        using var call = _kv.Scan(new ScanRequest { Prefix = Bytes(_prefix) });
        Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
        var pages = new List<ScanPage> { call.ResponseStream.Current };
        await _kv.WriteAsync(new WriteRequest
        {
            Operations = { Enumerable.Range(0, 2_000).Select(index => new Operation { Delete = new DeleteOperation { Key = Key($"{index:0000}") } }) }
        });
        while (await call.ResponseStream.MoveNext(CancellationToken.None))
            pages.Add(call.ResponseStream.Current);
        Assert.True(pages.Count > 5);
        Assert.Equal(2_000, pages.Sum(page => page.Entries.Count));
        Assert.Single(pages.Select(page => page.Position.Etag).Distinct());
        Assert.Equal([], await ScanAsync(new ScanRequest { Prefix = Bytes(_prefix) }));
    }

    [Fact]
    public async Task Exchange_AnswersEveryCallById_AndKeepsTheOrderOfChanges()
    {
        using var exchange = _kv.Exchange();
        var put = new ExchangeRequest();
        for (var index = 1ul; index <= 500; index++)
            put.Calls.Add(
                new Call { Id = index, Method = V1.Method.Put, Request = new PutRequest { Key = Key("same"), Value = Bytes($"{index}") }.ToByteString() });
        await exchange.RequestStream.WriteAsync(put);
        var replies = await ReadAsync(exchange, 500);
        var etags = replies.OrderBy(reply => reply.Id).Select(reply => PutResponse.Parser.ParseFrom(reply.Response).Position.Etag.Change).ToList();
        Assert.Equal(etags.Order(), etags);

        await exchange.RequestStream.WriteAsync(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = V1.Method.Get, Request = new GetRequest { Key = Key("same") }.ToByteString() },
                new Call { Id = 2, Method = V1.Method.Get, Request = new GetRequest().ToByteString() },
                new Call { Id = 3, Method = (V1.Method)99 },
                new Call { Id = 4, Method = V1.Method.Put, Request = ByteString.CopyFrom(0xFF) },
                new Call { Id = 5, Method = V1.Method.Get, Request = new GetRequest { Key = Key("same") }.ToByteString(), Shard = 77, Generation = 1 },
                // Only the range counts. What the caller knows of the shard may be newer or older than what this node knows.
                new Call { Id = 6, Method = V1.Method.Get, Request = new GetRequest { Key = Key("same") }
                    .ToByteString(), Shard = ShardOf(_prefix), Generation = 77 },
            },
        });
        await exchange.RequestStream.CompleteAsync();
        var answers = (await ReadAsync(exchange, 6)).ToDictionary(reply => reply.Id);
        Assert.All((ulong[])[1, 6], id => Assert.Equal(Bytes("500"), GetResponse.Parser.ParseFrom(answers[id].Response).Value));
        Assert.Equal(["KEY_EMPTY", "UNSUPPORTED_BY_PEER", "BAD_REQUEST", "WRONG_SHARD"], Enumerable.Range(2, 4).Select(id => ReasonOf(answers[(ulong)id])));
        var hint = Google.Rpc.Status.Parser.ParseFrom(answers[5].Status).GetDetail<RouteHint>()!;
        Assert.Equal(ShardOf(_prefix), hint.Routes.Single().Shard);
        Assert.False(await exchange.ResponseStream.MoveNext(CancellationToken.None));
    }

    [Fact]
    public async Task Write_WithResults_TellsOfEachOperation()
    {
        await _kv.PutAsync(new PutRequest { Key = Key("there"), Value = Bytes("v") });
        var none = await _kv.WriteAsync(new WriteRequest { WithResults = true, Operations = { Put("a", Bytes("1")), DeleteOf("absent") } });
        Assert.Equal(0ul, none.Deleted);
        Assert.Equal([none.Position.Etag.Change - 1, none.Position.Etag.Change], none.Results.Select(result => result.Etag.Change));
        Assert.Equal([(false, false), (true, false)], none.Results.Select(result => (result.HasExisted, result.Existed)));
        var some = await _kv.WriteAsync(new WriteRequest { WithResults = true, Operations = { DeleteOf("there"), DeleteOf("absent") } });
        Assert.Equal(1ul, some.Deleted);
        Assert.Equal([(true, true), (true, false)], some.Results.Select(result => (result.HasExisted, result.Existed)));
        var all = await _kv.WriteAsync(new WriteRequest { WithResults = true, Operations = { DeleteOf("a"), Put("b", Bytes("2")) } });
        Assert.Equal([(true, true), (false, false)], all.Results.Select(result => (result.HasExisted, result.Existed)));
        Assert.Equal((await _kv.GetAsync(new GetRequest { Key = Key("b") })).Etag, all.Results[1].Etag);
        var unasked = await _kv.WriteAsync(new WriteRequest { Operations = { DeleteOf("b") } });
        Assert.Equal((1ul, 0), (unasked.Deleted, unasked.Results.Count));
        await RefusedAsync(
            () => _kv.WriteAsync(new WriteRequest { WithResults = true, Operations = { Enumerable.Repeat(Put("a", ByteString.Empty), 513) } }),
            StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS");
    }

    /// <summary>A change was applied and then refused as too large for its caller, as if it had not been.</summary>
    [Fact]
    public async Task Exchange_OfAChangeWhoseAnswerIsLargerThanTheCallAllows_IsAnswered()
    {
        using var exchange = _kv.Exchange();
        await exchange.RequestStream.WriteAsync(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = V1.Method.Put, Request = new PutRequest { Key = Key("k"), Value = Bytes("v") }.ToByteString(), ReplyBytesMax = 1 },
                new Call { Id = 2, Method = V1.Method.Get, Request = new GetRequest { Key = Key("k") }.ToByteString(), ReplyBytesMax = 1 },
            },
        });
        var replies = (await ReadAsync(exchange, 2)).ToDictionary(reply => reply.Id);
        Assert.Equal(0, replies[1].Code);
        Assert.Equal("REPLY_LARGE", ReasonOf(replies[2]));
    }

    /// <summary>An absent number would be read as 0, which is the id of a shard and of no node.</summary>
    [Fact]
    public async Task OperatorsCalls_WithoutARequiredField_ChangeNothing()
    {
        var admin = fixture.Cluster.AdminOf(1);
        await RefusedAsync(() => admin.TransferAsync(new TransferRequest()), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => admin.TransferAsync(new TransferRequest { Shard = 0, ToNode = 0 }), StatusCode.NotFound, "NO_NODE");
        await RefusedAsync(() => admin.ReplaceAsync(new ReplaceRequest { FromNode = 1, ToNode = 1 }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => admin.ReplaceAsync(new ReplaceRequest { Shard = 0 }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => admin.ReplaceAsync(new ReplaceRequest { Shard = 0, FromNode = 1, ToNode = 0 }), StatusCode.NotFound, "NO_NODE");
        await RefusedAsync(
            () => admin.QuarantineAsync(new QuarantineRequest { Node = 1, Reason = "a slip", Force = true }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => admin.DrainAsync(new DrainRequest { Node = 1, Force = true }), StatusCode.InvalidArgument, "BAD_REQUEST");
        Assert.False((await fixture.Cluster.StatusOfAsync(1)).Draining);
    }

    [Fact]
    public async Task Exchange_MoreCallsThanMayBeOpen_AnswersAll()
    {
        using var exchange = _kv.Exchange();
        const int calls = 20_000;
        var writing = Task.Run(async () =>
        {
            for (var first = 0; first < calls; first += 100)
            {
                var request = new ExchangeRequest();
                for (var index = first; index < first + 100; index++)
                    request.Calls.Add(new Call
                    {
                        Id = (ulong)index, Method = V1.Method.Put,
                        Request = new PutRequest { Key = Key($"{index % 50}"), Value = Bytes("v") }.ToByteString()
                    });
                await exchange.RequestStream.WriteAsync(request);
            }
            await exchange.RequestStream.CompleteAsync();
        });
        var replies = await ReadAsync(exchange, calls);
        await writing;
        Assert.Equal(calls, replies.Select(reply => reply.Id).Distinct().Count());
        Assert.All(replies, reply => Assert.True(reply.Code == 0 || ReasonOf(reply) == "BUSY"));
    }

    [Fact]
    public async Task WatchShards_BeginsWithTheWholeMap()
    {
        using var call = new Cluster.ClusterClient(fixture.Cluster.ChannelOf(1).Calls()).WatchShards(new WatchShardsRequest());
        Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
        var map = call.ResponseStream.Current;
        Assert.True(map.Complete);
        Assert.Equal([ByteString.Empty, Bytes("m")], map.Shards.Select(shard => shard.Start));
        Assert.All(map.Shards, shard => Assert.Equal([1u], shard.Nodes));
    }

    [Fact]
    public async Task Checkpoint_CoversEarlierPuts()
    {
        var put = await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("v") });
        var done = await fixture.Cluster.AdminOf(1).CheckpointAsync(new CheckpointRequest());
        Assert.All(done.Replicas, replica => Assert.Equal("", replica.Error));
        Assert.True(Compare(done.Replicas.Single(replica => replica.Shard == put.Position.Shard).Etag, put.Position.Etag) >= 0);
    }

    private static uint ShardOf(string key) => string.CompareOrdinal(key, "m") < 0 ? 0u : 1u;

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static int Compare(V1.Etag left, V1.Etag right) => new Etag(left.Epoch, left.Change).CompareTo(new Etag(right.Epoch, right.Change));

    private static string ReasonOf(Reply reply) => Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Reason;

    private static Task<ErrorInfo> RefusedAsync<T>(Func<AsyncUnaryCall<T>> call, StatusCode code, string reason) =>
        Refusal.ExpectAsync(async () => await call(), code, reason);

    private static async Task<List<Reply>> ReadAsync(AsyncDuplexStreamingCall<ExchangeRequest, ExchangeResponse> exchange, int count)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        var replies = new List<Reply>();
        while (replies.Count < count && await exchange.ResponseStream.MoveNext(limit.Token))
            replies.AddRange(exchange.ResponseStream.Current.Replies);
        return replies;
    }

    private Operation DeleteOf(string name) => new() { Delete = new DeleteOperation { Key = Key(name) } };

    private Operation Put(string name, ByteString value) => new() { Put = new PutOperation { Key = Key(name), Value = value } };

    private ByteString Key(string name) => Bytes(_prefix + name);

    private async Task<List<ScanPage>> PagesAsync(ScanRequest request)
    {
        using var call = _kv.Scan(request);
        var pages = new List<ScanPage>();
        while (await call.ResponseStream.MoveNext(CancellationToken.None))
            pages.Add(call.ResponseStream.Current);
        return pages;
    }

    private async Task<List<string>> ScanAsync(ScanRequest request) =>
        [.. (await PagesAsync(request)).SelectMany(page => page.Entries).Select(entry => entry.Key.ToStringUtf8()[_prefix.Length..])];

    /// <summary>One node that all tests of the class share. Each test uses its own keys.</summary>
    public sealed class OneNode : IAsyncLifetime
    {
        internal NodeCluster Cluster { get; private set; } = null!;

        public async Task InitializeAsync()
        {
            Cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
            await Cluster.LeaderOfAsync(0);
            await Cluster.LeaderOfAsync(1);
        }

        public async Task DisposeAsync() => await Cluster.DisposeAsync();
    }
}
