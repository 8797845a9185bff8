using System.Globalization;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>
/// The calls that change keys and sets in other ways than by single puts and deletes, as their callers see them: one node, and two shards divided at "m".
/// </summary>
public sealed class WriteApiTests(KvApiTests.OneNode fixture) : IClassFixture<KvApiTests.OneNode>
{
    private readonly Kv.KvClient _kv = fixture.Cluster.KvOf(1);
    private readonly string _prefix = $"a/{Guid.NewGuid():N}/";

    [Fact]
    public async Task Increment_AddsAndAnswersTheNumber()
    {
        Assert.Equal(5, (await IncrementAsync(5)).Number);
        var less = await IncrementAsync(-7);
        Assert.Equal(-2, less.Number);
        var got = await GetAsync("n");
        Assert.Equal((Bytes("-2"), less.Position.Etag), (got.Value, got.Etag));
        Assert.Equal(0, (await IncrementAsync(2)).Number);
    }

    [Fact]
    public async Task Increment_OfTextOrBeyondTheRange_IsRefused_AndChangesNothing()
    {
        await PutAsync("n", "text");
        await RefusedAsync(() => IncrementCall(1), StatusCode.FailedPrecondition, "NOT_A_NUMBER");
        await PutAsync("n", long.MaxValue.ToString(CultureInfo.InvariantCulture));
        await RefusedAsync(() => IncrementCall(1), StatusCode.FailedPrecondition, "NUMBER_OVERFLOW");
        await RefusedAsync(
            () => _kv.WriteAsync(new WriteRequest
            {
                WithResults = true,
                Operations = { Put("other", "v"), new Operation { Increment = new IncrementOperation { Key = Key("n"), By = 1 } } }
            }),
            StatusCode.FailedPrecondition,
            "NUMBER_OVERFLOW");
        Assert.False((await GetAsync("other")).Found);
    }

    [Fact]
    public async Task Put_WithASequence_GetsTheNextKey()
    {
        var put = new PutRequest { Key = Key("queue/"), Value = Bytes("v"), Sequence = true };
        Assert.Equal($"queue/{1:d20}", NameOf((await _kv.PutAsync(put)).Key));
        Assert.Equal($"queue/{2:d20}", NameOf((await _kv.PutAsync(put)).Key));
        Assert.True((await GetAsync($"queue/{2:d20}")).Found);
        Assert.True((await _kv.PutAsync(new PutRequest { Key = Key("k") })).Key.IsEmpty);
    }

    [Fact]
    public async Task Put_WithATtl_IsThere_AndTouchTellsWhetherItIs()
    {
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("v"), TtlMs = 3_600_000 });
        Assert.True((await _kv.TouchAsync(new TouchRequest { Key = Key("k"), TtlMs = 7_200_000 })).Existed);
        Assert.True((await _kv.TouchAsync(new TouchRequest { Key = Key("k") })).Existed);
        Assert.False((await _kv.TouchAsync(new TouchRequest { Key = Key("absent"), TtlMs = 1 })).Existed);
        Assert.Equal(Bytes("v"), (await GetAsync("k")).Value);
    }

    [Fact]
    public async Task Put_OfAnUnknownOwner_IsRefused()
    {
        var owner = ByteString.CopyFrom([.. Enumerable.Repeat((byte)7, 16)]);
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = Key("k"), Owner = owner }), StatusCode.FailedPrecondition, "NO_OWNER");
        var session = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k") });
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = Key("k"), Owner = session.Session }), StatusCode.FailedPrecondition, "NO_OWNER");
        Assert.False((await GetAsync("k")).Found);
    }

    [Fact]
    public async Task Put_WithAnOwner_EndsWithItsSession_AlsoIfItWasIncrementedOrNumbered()
    {
        var session = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k"), LifetimeMs = 86_400_000 });
        await _kv.PutAsync(new PutRequest { Key = Key("n"), Value = Bytes("1"), Owner = session.Session, TtlMs = 86_400_000 });
        await IncrementAsync(1);
        var numbered = await WriteOf(
            new Operation { Put = new PutOperation { Key = Key("queue/"), Owner = session.Session, Sequence = true } }, Put("free", "v"));
        await _kv.PutAsync(new PutRequest { Key = Key("taken"), Owner = session.Session });
        await PutAsync("taken", "by nobody");
        Assert.Equal(2ul, (await _kv.EndSessionAsync(new EndSessionRequest { Key = Key("k"), Session = session.Session })).Deleted);
        Assert.False((await GetAsync("n")).Found);
        Assert.False((await _kv.GetAsync(new GetRequest { Key = numbered.Results[0].Entries[0].Key })).Found);
        Assert.True((await GetAsync("free")).Found);
        Assert.True((await GetAsync("taken")).Found);
    }

    [Fact]
    public async Task Put_WithAShortTtl_IsGoneAfterwards_AndOneThatIsTouchedIsNot()
    {
        await _kv.WriteAsync(new WriteRequest
        {
            Operations =
            {
                new Operation { Put = new PutOperation { Key = Key("short"), TtlMs = 1 } },
                new Operation { Put = new PutOperation { Key = Key("kept"), TtlMs = 1 } },
                new Operation { Touch = new TouchOperation { Key = Key("kept") } },
            },
        });
        await Eventually.TrueAsync(async () => !(await GetAsync("short")).Found, "the key that expires is gone");
        Assert.True((await GetAsync("kept")).Found);
    }

    [Fact]
    public async Task DeleteRange_RemovesThePart_InItsShard_AndSaysWhereItGoesOn()
    {
        foreach (var name in (string[])["b/1", "b/2", "c"])
            await PutAsync(name, "v");
        var all = await _kv.DeleteRangeAsync(new DeleteRangeRequest { Prefix = Key("b/") });
        Assert.Equal((2ul, false), (all.Deleted, all.HasNextStart));
        Assert.False((await GetAsync("b/1")).Found);
        Assert.True((await GetAsync("c")).Found);
        var beyond = await _kv.DeleteRangeAsync(
            new DeleteRangeRequest { Start = Key("c"), End = Bytes("z"), Conditions = { new Condition { Key = Key("c"), Exists = true } } });
        Assert.True(beyond.Deleted >= 1);
        Assert.Equal(Bytes("m"), beyond.NextStart);
        Assert.Equal(0ul, (await _kv.DeleteRangeAsync(new DeleteRangeRequest { Start = Key("y"), End = Key("x") })).Deleted);
    }

    [Fact]
    public async Task Write_WithResults_TellsOfEachOperation_InOrder()
    {
        await PutAsync("there", "v");
        var written = await _kv.WriteAsync(new WriteRequest
        {
            WithResults = true,
            Operations =
            {
                Put("a", "1"),
                new Operation { Increment = new IncrementOperation { Key = Key("a"), By = 41 } },
                new Operation { Get = new KeyOperation { Key = Key("a") } },
                new Operation { Delete = new DeleteOperation { Key = Key("there") } },
                new Operation { SetAdd = new SetOperation { Key = Key("s"), Member = Bytes("m") } },
                new Operation { SetAdd = new SetOperation { Key = Key("s"), Member = Bytes("m") } },
                new Operation { SetGet = new SetOperation { Key = Key("s"), Member = Bytes("other") } },
                new Operation { Put = new PutOperation { Key = Key("q/"), Sequence = true } },
                new Operation { Scan = new RangeOperation { Start = Key(""), End = Key("r"), Limit = 1, KeysOnly = true } },
                new Operation { DeleteRange = new RangeOperation { Start = Key("q/"), End = Key("q0") } },
                new Operation { Touch = new TouchOperation { Key = Key("a"), TtlMs = 60_000 } },
            },
        });
        var results = written.Results;
        var last = written.Position.Etag.Change;
        // A put, an increment, a delete, a member, a numbered put, a range and a touch take a change.
        Assert.Equal([last - 6, last - 5, null, last - 4, last - 3, null, null, last - 2, null, last - 1, last], results.Select(result => result.Etag?.Change));
        Assert.Equal([null, 42L, null, null, 1L, 1L, 1L, null, null, 1L, null], results.Select(result => result.HasNumber ? result.Number : (long?)null));
        Assert.Equal(
            [null, null, null, true, false, true, false, null, null, null, true], results.Select(result => result.HasExisted ? result.Existed : (bool?)null));
        Assert.Equal(("a", Bytes("42"), results[1].Etag), (NameOf(results[2].Entries[0].Key), results[2].Entries[0].Value, results[2].Entries[0].Etag));
        Assert.Equal(($"q/{1:d20}", results[7].Etag), (NameOf(results[7].Entries[0].Key), results[7].Entries[0].Etag));
        Assert.Equal(("a", true, true), (NameOf(Assert.Single(results[8].Entries).Key), results[8].Entries[0].Value.IsEmpty, results[8].More));
        Assert.Equal(2ul, written.Deleted);
    }

    [Fact]
    public async Task Transact_AppliesOneListOrTheOther()
    {
        var transact = new TransactRequest
        {
            Conditions = { new Condition { Key = Key("lock"), Exists = false } },
            Success = { Put("lock", "mine") },
            Failure = { new Operation { Get = new KeyOperation { Key = Key("lock") } } },
        };
        var first = await _kv.TransactAsync(transact);
        Assert.Equal((true, false, 1), (first.Succeeded, first.HasFailedCondition, first.Results.Count));
        var second = await _kv.TransactAsync(transact);
        Assert.Equal((false, 0u), (second.Succeeded, second.FailedCondition));
        Assert.True(second.HasFailedCondition);
        Assert.Equal((Bytes("mine"), first.Position.Etag), (second.Results[0].Entries[0].Value, second.Results[0].Entries[0].Etag));
        Assert.Null(second.Results[0].Etag);
        var none = await _kv.TransactAsync(new TransactRequest { Conditions = { new Condition { Key = Key("lock"), Exists = true } } });
        Assert.Equal((true, 0), (none.Succeeded, none.Results.Count));
    }

    [Fact]
    public async Task Transact_Repeated_GetsItsFirstAnswer()
    {
        var session = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k") });
        var transact = new TransactRequest
        {
            Conditions = { new Condition { Key = Key("n"), Exists = false } },
            Success = { new Operation { Increment = new IncrementOperation { Key = Key("n"), By = 7 } } },
            Failure = { new Operation { Delete = new DeleteOperation { Key = Key("n") } } },
            RequestId = new RequestId { Session = session.Session, Sequence = 1, LowestOpen = 1, Shard = session.Position.Shard },
        };
        var first = await _kv.TransactAsync(transact);
        Assert.Equal(first, await _kv.TransactAsync(transact));
        Assert.Equal(Bytes("7"), (await GetAsync("n")).Value);
        transact.RequestId.Sequence = 2;
        var second = await _kv.TransactAsync(transact);
        Assert.False(second.Succeeded);
        Assert.Equal(second, await _kv.TransactAsync(transact));
        var put = new PutRequest { Key = Key("q/"), Sequence = true, RequestId = new RequestId(transact.RequestId) { Sequence = 3 } };
        Assert.Equal(await _kv.PutAsync(put), await _kv.PutAsync(put));
    }

    [Fact]
    public async Task Conditions_OfEveryKind_AreEvaluated()
    {
        var etag = (await PutAsync("k", "5")).Position.Etag;
        var before = new V1.Etag { Epoch = etag.Epoch, Change = etag.Change - 1 };
        await _kv.SetAddAsync(new SetAddRequest { Key = Key("s"), Members = { Bytes("m") } });
        Condition[] holding =
        [
            new() { Key = Key("k"), Etag = new EtagComparison { Relation = Relation.Equal, Etag = etag } },
            new() { Key = Key("k"), Etag = new EtagComparison { Relation = Relation.Greater, Etag = before } },
            new() { Key = Key("k"), Value = new ValueComparison { Relation = Relation.Less, Value = Bytes("6") } },
            new() { Key = Key("k"), Value = new ValueComparison { Relation = Relation.NotEqual, Value = Bytes("6") } },
            new() { Key = Key("s"), SetHas = Bytes("m") },
            new() { Key = Key("s"), SetLacks = Bytes("n") },
            new() { Key = Key("k"), Range = new RangeCondition { End = Key("l"), Keys = 1, EtagGreatest = etag } },
            new() { Key = Key("l"), Range = new RangeCondition { End = Key("m"), Keys = 0, EtagGreatest = new V1.Etag() } },
        ];
        Assert.True((await _kv.TransactAsync(new TransactRequest { Conditions = { holding } })).Succeeded);
        Condition[] failing =
        [
            new() { Key = Key("k"), Etag = new EtagComparison { Relation = Relation.Less, Etag = etag } },
            new() { Key = Key("absent"), Etag = new EtagComparison { Relation = Relation.NotEqual, Etag = etag } },
            new() { Key = Key("k"), Value = new ValueComparison { Relation = Relation.Greater, Value = Bytes("5") } },
            new() { Key = Key("s"), SetLacks = Bytes("m") },
            new() { Key = Key("none"), SetHas = Bytes("m") },
            new() { Key = Key("k"), Range = new RangeCondition { End = Key("l"), Keys = 2 } },
            new() { Key = Key("k"), Range = new RangeCondition { End = Key("l"), EtagGreatest = before } },
        ];
        foreach (var condition in failing)
            Assert.Equal((false, 1u), await _kv.TransactAsync(new TransactRequest { Conditions = { holding[0], condition } }) is var answer
                ? (answer.Succeeded, answer.FailedCondition)
                : default);
    }

    [Fact]
    public async Task Sets_CountWhatChanges_AndTakeNoChangeWithoutEffect()
    {
        var added = await _kv.SetAddAsync(new SetAddRequest { Key = Key("s"), Members = { Bytes("a"), Bytes("b"), Bytes("a") } });
        Assert.Equal(2ul, added.Added);
        var again = await _kv.SetAddAsync(new SetAddRequest { Key = Key("s"), Members = { Bytes("a") } });
        Assert.Equal(0ul, again.Added);
        Assert.Equal(1ul, (await _kv.SetRemoveAsync(new SetRemoveRequest { Key = Key("s"), Members = { Bytes("a"), Bytes("c") } })).Removed);
        Assert.Equal(1ul, (await _kv.SetRemoveAsync(new SetRemoveRequest { Key = Key("s"), All = true })).Removed);
        Assert.Equal(0ul, (await _kv.SetRemoveAsync(new SetRemoveRequest { Key = Key("s"), All = true })).Removed);
    }

    [Fact]
    public async Task Requests_ThatAreWrong_EachHaveTheirReason()
    {
        var longKey = ByteString.CopyFrom(new byte[2_049]);
        var almostLongKey = ByteString.CopyFrom([.. Enumerable.Repeat((byte)'a', 2_030)]);
        await RefusedAsync(() => _kv.IncrementAsync(new IncrementRequest()), StatusCode.InvalidArgument, "KEY_EMPTY");
        await RefusedAsync(() => _kv.TouchAsync(new TouchRequest { Key = longKey }), StatusCode.InvalidArgument, "KEY_TOO_LONG");
        await RefusedAsync(() => _kv.TouchAsync(new TouchRequest { Key = Key("k"), TtlMs = 0 }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = Key("k"), TtlMs = ulong.MaxValue }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = Key("k"), Owner = Bytes("short") }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => _kv.PutAsync(new PutRequest { Key = almostLongKey, Sequence = true }), StatusCode.InvalidArgument, "KEY_TOO_LONG");
        await RefusedAsync(() => _kv.DeleteRangeAsync(new DeleteRangeRequest()), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(
            () => _kv.DeleteRangeAsync(new DeleteRangeRequest { End = ByteString.CopyFrom(new byte[2_050]) }), StatusCode.InvalidArgument, "KEY_TOO_LONG");
        await RefusedAsync(() => _kv.SetAddAsync(new SetAddRequest { Key = Key("s") }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(
            () => _kv.SetAddAsync(new SetAddRequest { Key = Key("s"), Members = { ByteString.Empty } }), StatusCode.InvalidArgument, "MEMBER_EMPTY");
        await RefusedAsync(
            () => _kv.SetAddAsync(new SetAddRequest { Key = Key("s"), Members = { ByteString.CopyFrom(new byte[1_025]) } }), StatusCode.InvalidArgument,
            "MEMBER_TOO_LONG");
        await RefusedAsync(
            () => _kv.SetAddAsync(new SetAddRequest { Key = Key("s"), Members = { Enumerable.Repeat(Bytes("m"), 10_001) } }), StatusCode.InvalidArgument,
            "TOO_MANY_OPERATIONS");
        await RefusedAsync(
            () => _kv.SetRemoveAsync(new SetRemoveRequest { Key = Key("s"), All = true, Members = { Bytes("m") } }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => _kv.TransactAsync(new TransactRequest()), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(
            () => _kv.TransactAsync(new TransactRequest { Failure = { Enumerable.Repeat(Put("k", ""), 513) } }), StatusCode.InvalidArgument,
            "TOO_MANY_OPERATIONS");
        await RefusedAsync(() => WriteOf(new Operation()), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(
            () => _kv.WriteAsync(new WriteRequest { Operations = { new Operation { Get = new KeyOperation { Key = Key("k") } } } }), StatusCode.InvalidArgument,
            "BAD_REQUEST");
        await RefusedAsync(
            () => WriteOf(new Operation { Scan = new RangeOperation { Start = Key("a"), Limit = 1_001 } }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(
            () => WriteOf(new Operation { Scan = new RangeOperation { Start = Key("b"), End = Key("a") } }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => WriteOf(new Operation { SetAdd = new SetOperation { Key = Key("s") } }), StatusCode.InvalidArgument, "MEMBER_EMPTY");
        await RefusedAsync(() => ConditionOf(new Condition { Key = Key("k"), Etag = new EtagComparison() }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => ConditionOf(new Condition { Key = Key("k"), Range = new RangeCondition() }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => ConditionOf(new Condition { Range = new RangeCondition { Keys = 1 } }), StatusCode.InvalidArgument, "BAD_REQUEST");
        await RefusedAsync(() => ConditionOf(new Condition { Key = Key("s"), SetHas = ByteString.Empty }), StatusCode.InvalidArgument, "MEMBER_EMPTY");
    }

    [Fact]
    public async Task Requests_OfSeveralShards_AreRefusedWithTheRoutes()
    {
        await RefusedAsync(
            () => WriteOf(Put("k", ""), new Operation { Increment = new IncrementOperation { Key = Bytes("z") } }), StatusCode.FailedPrecondition,
            "SHARDS_DIFFER");
        await RefusedAsync(
            () => WriteOf(Put("k", ""), new Operation { DeleteRange = new RangeOperation { Start = Key("a"), End = Bytes("n") } }),
            StatusCode.FailedPrecondition, "SHARDS_DIFFER");
        await RefusedAsync(
            () => WriteOf(Put("k", ""), new Operation { Scan = new RangeOperation { Start = Bytes("z") } }), StatusCode.FailedPrecondition, "SHARDS_DIFFER");
        await RefusedAsync(
            () => _kv.TransactAsync(
                new TransactRequest { Success = { Put("k", "") }, Failure = { new Operation { Delete = new DeleteOperation { Key = Bytes("z") } } } }),
            StatusCode.FailedPrecondition, "SHARDS_DIFFER");
        await RefusedAsync(
            () => ConditionOf(new Condition { Key = Key("k"), Range = new RangeCondition { End = Bytes("n"), Keys = 1 } }), StatusCode.FailedPrecondition,
            "SHARDS_DIFFER");
        // The numbers under this prefix begin in one shard, and would go on in the other.
        Assert.Equal($"l{1:d20}", (await _kv.PutAsync(new PutRequest { Key = Bytes("l"), Sequence = true })).Key.ToStringUtf8());
        // Up to the end of the shard it has everything.
        Assert.Single((await WriteOf(new Operation { Scan = new RangeOperation { Start = Key("a"), End = Bytes("m"), Limit = 1 } })).Results);
    }

    // A put of one key was refused with a text about several. A bound beyond the greatest number divides nothing, and was a reason too.
    [Fact]
    public async Task Put_WithASequenceThatABoundDivides_IsRefusedWithTheReason()
    {
        await using var cluster = await NodeCluster.StartAsync(1, "jobs/00000000000000000005"u8.ToArray(), "queue/5"u8.ToArray());
        for (var shard = 0u; shard < 3; shard++)
            await cluster.LeaderOfAsync(shard);
        var kv = cluster.KvOf(1);
        Assert.Equal($"queue/{1:d20}", (await kv.PutAsync(new PutRequest { Key = Bytes("queue/"), Sequence = true })).Key.ToStringUtf8());
        var divided = await Assert.ThrowsAsync<RpcException>(async () => await kv.PutAsync(new PutRequest { Key = Bytes("jobs/"), Sequence = true }));
        Assert.Equal("SHARDS_DIFFER", divided.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
        Assert.Contains("Use another prefix", divided.Status.Detail);
        Assert.DoesNotContain("The keys of the request", divided.Status.Detail);
    }

    [Fact]
    public async Task Transact_ThatReadsMoreThanItMay_IsRefused()
    {
        for (var index = 0; index < 5; index++)
            await _kv.PutAsync(new PutRequest { Key = Key($"large/{index}"), Value = ByteString.CopyFrom(new byte[1 << 20]) });
        await RefusedAsync(
            () => _kv.TransactAsync(new TransactRequest
            {
                Success = { Put("k", "v"), new Operation { Scan = new RangeOperation { Start = Key("large/"), End = Key("large0") } } }
            }),
            StatusCode.ResourceExhausted,
            "ANSWER_TOO_LARGE");
        Assert.False((await GetAsync("k")).Found);
    }

    private AsyncUnaryCall<WriteResponse> WriteOf(params Operation[] operations) =>
        _kv.WriteAsync(new WriteRequest { WithResults = true, Operations = { operations } });

    private AsyncUnaryCall<TransactResponse> ConditionOf(Condition condition) => _kv.TransactAsync(new TransactRequest { Conditions = { condition } });

    private AsyncUnaryCall<IncrementResponse> IncrementCall(long by) => _kv.IncrementAsync(new IncrementRequest { Key = Key("n"), By = by });

    private async Task<IncrementResponse> IncrementAsync(long by) => await IncrementCall(by);

    private async Task<PutResponse> PutAsync(string name, string value) => await _kv.PutAsync(new PutRequest { Key = Key(name), Value = Bytes(value) });

    private async Task<GetResponse> GetAsync(string name) => await _kv.GetAsync(new GetRequest { Key = Key(name) });

    private Operation Put(string name, string value) => new() { Put = new PutOperation { Key = Key(name), Value = Bytes(value) } };

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private ByteString Key(string name) => Bytes(_prefix + name);

    private string NameOf(ByteString key) => key.ToStringUtf8()[_prefix.Length..];

    private static async Task<ErrorInfo> RefusedAsync<T>(Func<AsyncUnaryCall<T>> call, StatusCode code, string reason)
    {
        var info = await Refusal.ExpectAsync(async () => await call(), code, reason);
        Assert.Equal("no", info.Metadata["applied"]);
        return info;
    }
}
