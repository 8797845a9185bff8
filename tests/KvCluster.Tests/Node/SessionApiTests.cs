using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Request ids as callers of the service Kv see them: one node, and two shards divided at "m".</summary>
public sealed class SessionApiTests(KvApiTests.OneNode fixture) : IClassFixture<KvApiTests.OneNode>
{
    private readonly Kv.KvClient _kv = fixture.Cluster.KvOf(1);
    private readonly string _prefix = $"a/{Guid.NewGuid():N}/";

    [Fact]
    public async Task Put_Repeated_GetsTheFirstAnswerAndIsAppliedOnce()
    {
        var id = await OpenAsync();
        var put = new PutRequest { Key = Key("k"), Value = Bytes("first"), RequestId = id };
        var first = await _kv.PutAsync(put);
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("second") });
        Assert.Equal(first, await _kv.PutAsync(put));
        Assert.Equal(Bytes("second"), (await _kv.GetAsync(new GetRequest { Key = Key("k") })).Value);
    }

    [Fact]
    public async Task Delete_Repeated_ReportsAgainThatTheKeyExisted()
    {
        var id = await OpenAsync();
        await _kv.PutAsync(new PutRequest { Key = Key("k") });
        var delete = new DeleteRequest { Key = Key("k"), RequestId = id };
        var first = await _kv.DeleteAsync(delete);
        Assert.True(first.Existed);
        Assert.Equal(first, await _kv.DeleteAsync(delete));
    }

    [Fact]
    public async Task Write_WhoseConditionFailed_FailsAgainThoughItWouldHoldNow()
    {
        var write = new WriteRequest
        {
            Conditions = { new Condition { Key = Key("k"), Exists = true } },
            Operations = { new Operation { Put = new PutOperation { Key = Key("k") } } },
            RequestId = await OpenAsync(),
        };
        var first = await RefusedAsync(() => _kv.WriteAsync(write), StatusCode.FailedPrecondition, "CONDITION_FAILED", "no");
        await _kv.PutAsync(new PutRequest { Key = Key("k") });
        var again = await RefusedAsync(() => _kv.WriteAsync(write), StatusCode.FailedPrecondition, "CONDITION_FAILED", "no");
        Assert.Equal(first.Metadata["etag"], again.Metadata["etag"]);
    }

    [Fact]
    public async Task Put_OfAnUnknownSession_OfAnotherShards_OrClosed_IsNotExecuted()
    {
        var id = await OpenAsync();
        var unknown = id.Clone();
        unknown.Session = Guess();
        await RefusedAsync(() => PutAsync("k", unknown), StatusCode.Aborted, "SESSION_EXPIRED", "unknown");
        var elsewhere = id.Clone();
        elsewhere.Shard++;
        await RefusedAsync(() => PutAsync("k", elsewhere), StatusCode.Aborted, "SESSION_EXPIRED", "unknown");
        await PutAsync("other", new RequestId(id) { Sequence = 2, LowestOpen = 2 });
        await RefusedAsync(() => PutAsync("k", id), StatusCode.Aborted, "SEQUENCE_CLOSED", "unknown");
        Assert.False((await _kv.GetAsync(new GetRequest { Key = Key("k") })).Found);
    }

    [Fact]
    public async Task Put_WithAnInvalidId_IsABadRequest()
    {
        var id = await OpenAsync();
        foreach (var bad in (RequestId[])
        [
            new RequestId(),
            new RequestId(id) { Session = ByteString.Empty },
            new RequestId(id) { Session = ByteString.CopyFrom(new byte[17]) },
            new RequestId(id) { Session = ByteString.CopyFrom(new byte[16]) },
            new RequestId(id) { Sequence = 0, LowestOpen = 0 },
            new RequestId(id) { Sequence = 1, LowestOpen = 2 },
            new RequestId(id) { Sequence = 5_000, LowestOpen = 1 },
            new RequestId(id) { Sequence = ulong.MaxValue, LowestOpen = ulong.MaxValue },
        ])
            await RefusedAsync(() => PutAsync("k", bad), StatusCode.InvalidArgument, "BAD_REQUEST", "no");
    }

    [Fact]
    public async Task Session_WithALifetime_IsKeptAliveAndEnded()
    {
        var opened = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k"), LifetimeMs = 60_000 });
        var plain = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k") });
        var kept = await _kv.KeepAliveAsync(new KeepAliveRequest { Key = Key("k"), Sessions = { opened.Session, Guess(), plain.Session, opened.Session } });
        Assert.Equal([60_000ul, 0ul, 0ul, 60_000ul], kept.LeftMs);
        Assert.True(kept.Position.Etag.Change >= opened.Position.Etag.Change);
        Assert.Empty((await _kv.KeepAliveAsync(new KeepAliveRequest { Key = Key("k") })).LeftMs);
        var ended = await _kv.EndSessionAsync(new EndSessionRequest { Key = Key("k"), Session = opened.Session });
        Assert.Equal((true, 0ul), (ended.Existed, ended.Deleted));
        Assert.False((await _kv.EndSessionAsync(new EndSessionRequest { Key = Key("k"), Session = opened.Session })).Existed);
        Assert.Equal([0ul], (await _kv.KeepAliveAsync(new KeepAliveRequest { Key = Key("k"), Sessions = { opened.Session } })).LeftMs);
        Assert.True((await _kv.EndSessionAsync(new EndSessionRequest { Key = Key("k"), Session = plain.Session })).Existed);
    }

    [Fact]
    public async Task Session_WithoutAKeepAlive_Ends()
    {
        var opened = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k"), LifetimeMs = 1_000 });
        // A request of the session is no KeepAlive. It is refused as soon as the session has ended.
        var put = new PutRequest
        {
            Key = Key("k"), RequestId = new RequestId { Session = opened.Session, Sequence = 1, LowestOpen = 1, Shard = opened.Position.Shard }
        };
        await Eventually.TrueAsync(
            async () =>
            {
                try
                {
                    await _kv.PutAsync(put);
                    return false;
                }
                catch (RpcException refused)
                {
                    return refused.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason == "SESSION_EXPIRED";
                }
            },
            "the session ends");
    }

    [Fact]
    public async Task Sessions_ThatCannotBe_AreBadRequests()
    {
        foreach (var lifetime in (ulong[])[0, 999, 86_400_001, ulong.MaxValue])
            await RefusedAsync(
                () => _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k"), LifetimeMs = lifetime }), StatusCode.InvalidArgument, "BAD_REQUEST", "no");
        foreach (var session in (ByteString[])[ByteString.Empty, ByteString.CopyFrom(new byte[16]), ByteString.CopyFrom(new byte[17])])
        {
            await RefusedAsync(
                () => _kv.KeepAliveAsync(new KeepAliveRequest { Key = Key("k"), Sessions = { session } }), StatusCode.InvalidArgument, "BAD_REQUEST", "no");
            await RefusedAsync(
                () => _kv.EndSessionAsync(new EndSessionRequest { Key = Key("k"), Session = session }), StatusCode.InvalidArgument, "BAD_REQUEST", "no");
        }
        var many = new KeepAliveRequest { Key = Key("k") };
        many.Sessions.AddRange(Enumerable.Repeat(Guess(), 10_001));
        await RefusedAsync(() => _kv.KeepAliveAsync(many), StatusCode.InvalidArgument, "TOO_MANY_OPERATIONS", "no");
        await RefusedAsync(() => _kv.KeepAliveAsync(new KeepAliveRequest()), StatusCode.InvalidArgument, "KEY_EMPTY", "no");
    }

    /// <summary>One error text listed the rules for ids, but a session of zeros and a sequence beyond the largest broke none of those listed.</summary>
    [Fact]
    public async Task Put_WithAnInvalidId_IsToldWhichRuleItBreaks()
    {
        var id = await OpenAsync();
        Assert.Contains(
            "which are not all zero", await DetailAsync(new RequestId(id) { Session = ByteString.CopyFrom(new byte[16]) }), StringComparison.Ordinal);
        Assert.Contains(
            "from 1 to 9223372036854775807", await DetailAsync(new RequestId(id) { Sequence = ulong.MaxValue, LowestOpen = ulong.MaxValue }),
            StringComparison.Ordinal);
        Assert.Contains(
            "from 1 to 9223372036854775807", await DetailAsync(new RequestId(id) { Sequence = 1UL << 63, LowestOpen = 1UL << 63 }), StringComparison.Ordinal);
        await PutAsync("k", new RequestId(id) { Sequence = long.MaxValue, LowestOpen = long.MaxValue });

        async Task<string> DetailAsync(RequestId bad)
        {
            var refused = await Assert.ThrowsAsync<RpcException>(async () => await PutAsync("k", bad));
            Assert.Contains("Nothing was applied", refused.Status.Detail, StringComparison.Ordinal);
            return refused.Status.Detail;
        }
    }

    /// <summary>
    /// Session ids were the etags of their openings, so whoever opened a session knew the ids of others. A stranger used a victim's next sequence
    /// number for a change. The victim's own change was then acknowledged with the stranger's etag and never applied (F43). Now the service tells an
    /// id only to its opener, and an etag reveals none.
    /// </summary>
    [Fact]
    public async Task Put_OfAStrangerWhoKnowsEverythingButTheId_IsRefusedAndTheOwnersPutsAreAppliedOnce()
    {
        var opened = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k") });
        var id = new RequestId { Session = opened.Session, Sequence = 1, LowestOpen = 1, Shard = opened.Position.Shard };
        Assert.Equal(16, opened.Session.Length);
        var own = (await OpenAsync()).Session.Span.ToArray();
        var etag = opened.Position.Etag;
        foreach (var guess in (ByteString[])
        [
            Guess(),
            ByteString.CopyFrom([.. BitConverter.GetBytes(etag.Epoch), .. BitConverter.GetBytes(etag.Change)]),
            ByteString.CopyFrom([.. BitConverter.GetBytes(etag.Change), .. BitConverter.GetBytes(etag.Epoch)]),
            ByteString.CopyFrom([.. BitConverter.GetBytes(etag.Epoch).Reverse(), .. BitConverter.GetBytes(etag.Change).Reverse()]),
            ByteString.CopyFrom([.. own[..^1], (byte)(own[^1] - 1)]),
        ])
            await RefusedAsync(() => PutAsync("stranger", new RequestId(id) { Session = guess }), StatusCode.Aborted, "SESSION_EXPIRED", "unknown");

        var put = new PutRequest { Key = Key("k"), Value = Bytes("the owner's"), RequestId = id };
        var first = await _kv.PutAsync(put);
        Assert.Equal(first, await _kv.PutAsync(put));
        Assert.Equal((Bytes("the owner's"), first.Position.Etag), await ReadAsync("k"));
        Assert.False((await _kv.GetAsync(new GetRequest { Key = Key("stranger") })).Found);
    }

    [Fact]
    public async Task Put_OfAnotherValueUnderAUsedSequence_IsRefused()
    {
        var id = await OpenAsync();
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("first"), RequestId = id });
        await RefusedAsync(
            () => _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Bytes("second"), RequestId = id }),
            StatusCode.FailedPrecondition, "SEQUENCE_REUSED", "no");
        await RefusedAsync(() => _kv.DeleteAsync(new DeleteRequest { Key = Key("k"), RequestId = id }), StatusCode.FailedPrecondition, "SEQUENCE_REUSED", "no");
        Assert.Equal(Bytes("first"), (await ReadAsync("k")).Value);
    }

    private async Task<(ByteString Value, V1.Etag Etag)> ReadAsync(string key)
    {
        var read = await _kv.GetAsync(new GetRequest { Key = Key(key) });
        return (read.Value, read.Etag);
    }

    private static ByteString Guess() => ByteString.CopyFrom(Guid.NewGuid().ToByteArray());

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static async Task<ErrorInfo> RefusedAsync<T>(Func<AsyncUnaryCall<T>> call, StatusCode code, string reason, string applied)
    {
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await call());
        var info = failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!;
        Assert.Equal((code, reason, applied), (failure.StatusCode, info.Reason, info.Metadata["applied"]));
        return info;
    }

    private ByteString Key(string name) => Bytes(_prefix + name);

    private AsyncUnaryCall<PutResponse> PutAsync(string key, RequestId id) =>
        _kv.PutAsync(new PutRequest { Key = Key(key), Value = Bytes("v"), RequestId = id });

    /// <summary>The id for the first request of a new session.</summary>
    private async Task<RequestId> OpenAsync()
    {
        var opened = await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k") });
        return new RequestId { Session = opened.Session, Sequence = 1, LowestOpen = 1, Shard = opened.Position.Shard };
    }
}
