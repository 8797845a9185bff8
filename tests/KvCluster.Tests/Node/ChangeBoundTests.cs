using Google.Protobuf;
using Grpc.Core;
using KvCluster.Storage.Context;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>The bounds of what one change may delete, and of what one session may own, as callers see them. Beyond them nothing is applied.</summary>
public sealed class ChangeBoundTests
{
    [Fact]
    public async Task Write_ThatDeletesMoreThanOneChangeMay_IsRefused_AndAloneTheDeleteGoesOn()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { RangeLeavesMax = 2 });
        var kv = cluster.KvOf(1);
        var fill = new WriteRequest { Operations = { Enumerable.Range(0, 5_000).Select(key => Put($"many/{key:d4}", new string('v', 50))) } };
        await kv.WriteAsync(fill);
        var range = new Operation { DeleteRange = new RangeOperation { Start = Utf8("many/"), End = Utf8("many0") } };
        await RefusedAsync(() => kv.WriteAsync(new WriteRequest { Operations = { Put("other", "v"), range } }), "RANGE_TOO_LARGE");
        Assert.False((await kv.GetAsync(new GetRequest { Key = Utf8("other") })).Found);
        var (deleted, start) = (0ul, Utf8("many/"));
        while (true)
        {
            var part = await kv.DeleteRangeAsync(new DeleteRangeRequest { Start = start, End = Utf8("many0") });
            deleted += part.Deleted;
            if (!part.HasNextStart)
                break;
            start = part.NextStart;
        }
        Assert.Equal(5_000ul, deleted);
    }

    [Fact]
    public async Task Session_ThatOwnsAllItMay_OwnsNoMore_UntilAKeyIsGone()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        var kv = cluster.KvOf(1);
        var owner = (await kv.OpenSessionAsync(new OpenSessionRequest { Key = Utf8("own/"), LifetimeMs = 86_400_000 })).Session;
        foreach (var half in Enumerable.Range(0, 10_000).Chunk(5_000))
            await kv.WriteAsync(new WriteRequest { Operations = { half.Select(key => Owned($"own/{key}", owner)) } });
        await RefusedAsync(() => kv.WriteAsync(new WriteRequest { Operations = { Put("free", "v"), Owned("own/more", owner) } }), "TOO_MANY_OWNED");
        Assert.False((await kv.GetAsync(new GetRequest { Key = Utf8("free") })).Found);
        await kv.DeleteAsync(new DeleteRequest { Key = Utf8("own/17") });
        await kv.WriteAsync(new WriteRequest { Operations = { Owned("own/more", owner) } });
        Assert.Equal(10_000ul, (await kv.EndSessionAsync(new EndSessionRequest { Key = Utf8("own/"), Session = owner })).Deleted);
        Assert.Equal(0ul, (await kv.CountAsync(new CountRequest { Prefix = Utf8("own/") })).Count);
    }

    private static async Task RefusedAsync(Func<AsyncUnaryCall<WriteResponse>> call, string reason)
    {
        var info = await Refusal.ExpectAsync(async () => await call(), StatusCode.FailedPrecondition, reason);
        Assert.Equal("no", info.Metadata["applied"]);
    }

    private static Operation Put(string key, string value) => new() { Put = new PutOperation { Key = Utf8(key), Value = Utf8(value) } };

    private static Operation Owned(string key, ByteString owner) => new() { Put = new PutOperation { Key = Utf8(key), Owner = owner } };

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);
}
