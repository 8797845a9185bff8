using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// What ends a key besides a delete, as its callers read and keep it, at a node and through a router. Saving a value in the console dropped the key's expiry
/// and took it from its session, and nobody could have seen that, because no call told either.
/// </summary>
public sealed class KeyLifeApiTests : IAsyncLifetime
{
    private const ulong HourMs = 3_600_000;
    private NodeCluster _cluster = null!;
    private RouterHost _router = null!;

    public async Task InitializeAsync()
    {
        _cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
        await _cluster.LeaderOfAsync(0);
        await _cluster.LeaderOfAsync(1);
        _router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = [_cluster.AddressOf(1)], Timeout = Eventually.Limit },
            new ProcessHealth(),
            NullLoggerFactory.Instance,
            CancellationToken.None);
    }

    public async Task DisposeAsync()
    {
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Reads_TellHowLongAKeyLivesAndWhoOwnsIt_IfTheyAreAsked(bool byRouter)
    {
        await using var client = ClientOf(byRouter);
        var session = await client.Sessions.OpenAsync("a"u8.ToArray(), TimeSpan.FromHours(1));
        await client.PutAsync("a/both"u8.ToArray(), "v"u8.ToArray(), new KvPutOptions { TimeToLive = TimeSpan.FromHours(1), Owner = session });
        await client.PutAsync("a/free", "v");
        await client.PutAsync("z/expires"u8.ToArray(), "v"u8.ToArray(), new KvPutOptions { TimeToLive = TimeSpan.FromHours(1) });

        var asked = new KvGetOptions { WithLife = true };
        var got = await client.GetAsync("a/both"u8.ToArray(), asked);
        AssertHour(got.Life);
        Assert.Equal(session.Opened, got.Life.Owner);
        Assert.Equal(default, (await client.GetAsync("a/both"u8.ToArray())).Life);
        Assert.Equal(default, (await client.GetAsync("a/free"u8.ToArray(), asked)).Life);
        AssertHour((await client.GetNearestAsync("a/a"u8.ToArray(), KvNearest.Ceiling, default, asked)).Life);
        var many = await client.GetManyAsync(["a/both"u8.ToArray(), "a/free"u8.ToArray(), "z/expires"u8.ToArray()], asked);
        AssertHour(many[0].Life);
        Assert.Equal(default, many[1].Life);
        AssertHour(many[2].Life);
        Assert.Null(many[2].Life.Owner);

        var scanned = await client.ScanAsync(new KvScan { KeysOnly = true, WithLife = true }).ToListAsync();
        AssertHour(scanned[0].Life);
        Assert.Equal((session.Opened, default, (Etag?)null), (scanned[0].Life.Owner, scanned[1].Life, scanned[2].Life.Owner));
        AssertHour(scanned[2].Life);
        Assert.All(await client.ScanAsync(new KvScan()).ToListAsync(), static entry => Assert.Equal(default, entry.Life));
        AssertHour((await client.ListAsync(new KvList { Start = "z"u8.ToArray(), WithLife = true })).Entries.Single().Life);
    }

    [Fact]
    public async Task TimeLeft_Falls_AndIsZeroNoEarlierThanTheKeyGoes()
    {
        var kv = _cluster.KvOf(1);
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            var ttlMs = (ulong)time.TotalMilliseconds;
            await kv.PutAsync(new PutRequest { Key = Utf8("k"), TtlMs = ttlMs });
            var left = ulong.MaxValue;
            await Eventually.TrueAsync(
                async () =>
                {
                    var got = await kv.GetAsync(new GetRequest { Key = Utf8("k"), WithLife = true });
                    if (!got.Found)
                        return true;
                    Assert.InRange(got.Life.LeftMs, 0ul, Math.Min(left, ttlMs));
                    left = got.Life.LeftMs;
                    return false;
                },
                "the key is gone");
            // Otherwise the key was gone before it was read a second time.
            return left < ttlMs;
        });
    }

    [Fact]
    public async Task Put_WithoutKeep_DropsExpiryAndOwner_AndWithIt_KeepsEach()
    {
        var kv = _cluster.KvOf(1);
        var session = await kv.OpenSessionAsync(new OpenSessionRequest { Key = Utf8("k"), LifetimeMs = HourMs });
        var owned = new PutRequest { Key = Utf8("k"), Value = Utf8("1"), TtlMs = HourMs, Owner = session.Session };
        await kv.PutAsync(owned);
        await AssertLifeAsync(hasExpiry: true, session.Position.Etag);

        await kv.PutAsync(new PutRequest { Key = Utf8("k"), Value = Utf8("2"), KeepExpiry = true, KeepOwner = true });
        Assert.Equal("2", (await AssertLifeAsync(hasExpiry: true, session.Position.Etag)).Value.ToStringUtf8());
        await kv.PutAsync(new PutRequest { Key = Utf8("k"), KeepOwner = true });
        await AssertLifeAsync(hasExpiry: false, session.Position.Etag);
        await kv.PutAsync(new PutRequest { Key = Utf8("k"), KeepOwner = true, TtlMs = HourMs });
        await AssertLifeAsync(hasExpiry: true, session.Position.Etag);
        await kv.PutAsync(new PutRequest { Key = Utf8("k"), KeepExpiry = true });
        await AssertLifeAsync(hasExpiry: true, owner: null);
        await kv.PutAsync(new PutRequest { Key = Utf8("k"), KeepExpiry = true, Owner = session.Session });
        await AssertLifeAsync(hasExpiry: true, session.Position.Etag);
        await kv.PutAsync(new PutRequest { Key = Utf8("k") });
        await AssertLifeAsync(hasExpiry: false, owner: null);

        // Nothing is kept of a key that is absent, also if it went in the same request.
        await kv.PutAsync(owned);
        await kv.WriteAsync(new WriteRequest
        {
            Operations =
            {
                new Operation { Delete = new DeleteOperation { Key = Utf8("k") } },
                new Operation { Put = new PutOperation { Key = Utf8("k"), KeepExpiry = true, KeepOwner = true } },
            },
        });
        await AssertLifeAsync(hasExpiry: false, owner: null);

        // What is kept ends the key as before.
        await kv.PutAsync(owned);
        var keeping = new PutOperation { Key = Utf8("k"), KeepExpiry = true, KeepOwner = true };
        await kv.WriteAsync(new WriteRequest { Operations = { new Operation { Put = keeping } } });
        Assert.Equal(1ul, (await kv.EndSessionAsync(new EndSessionRequest { Key = Utf8("k"), Session = session.Session })).Deleted);
        Assert.False((await kv.GetAsync(new GetRequest { Key = Utf8("k") })).Found);

        async Task<GetResponse> AssertLifeAsync(bool hasExpiry, V1.Etag? owner)
        {
            var got = await kv.GetAsync(new GetRequest { Key = Utf8("k"), WithLife = true });
            Assert.Equal((true, hasExpiry, owner), (got.Found, got.Life?.HasLeftMs ?? false, got.Life?.Owner));
            return got;
        }
    }

    /// <summary>A repetition under the same request id has the first answer, and does not give the key what it has got meanwhile.</summary>
    [Fact]
    public async Task Put_ThatKeeps_IsAppliedOnce()
    {
        var kv = _cluster.KvOf(1);
        var session = await kv.OpenSessionAsync(new OpenSessionRequest { Key = Utf8("k") });
        var put = new PutRequest
        {
            Key = Utf8("k"),
            Value = Utf8("kept"),
            KeepExpiry = true,
            RequestId = new RequestId { Session = session.Session, Sequence = 1, LowestOpen = 1, Shard = session.Position.Shard },
        };
        var first = await kv.PutAsync(put);
        await kv.PutAsync(new PutRequest { Key = Utf8("k"), Value = Utf8("newer"), TtlMs = HourMs });
        Assert.Equal(first.Position.Etag, (await kv.PutAsync(put)).Position.Etag);
        Assert.Equal("newer", (await kv.GetAsync(new GetRequest { Key = Utf8("k") })).Value.ToStringUtf8());
        put.KeepOwner = true;
        Assert.Equal("SEQUENCE_REUSED", await ReasonAsync(() => kv.PutAsync(put)));
    }

    [Fact]
    public async Task Put_ThatKeepsAndSets_IsRefused()
    {
        var kv = _cluster.KvOf(1);
        var session = (await kv.OpenSessionAsync(new OpenSessionRequest { Key = Utf8("k"), LifetimeMs = HourMs })).Session;
        foreach (var put in (PutRequest[])[
            new() { KeepExpiry = true, TtlMs = 1 },
            new() { KeepOwner = true, Owner = session },
            new() { KeepExpiry = true, Sequence = true },
            new() { KeepOwner = true, Sequence = true }])
        {
            put.Key = Utf8("k");
            Assert.Equal("BAD_REQUEST", await ReasonAsync(() => kv.PutAsync(put)));
            var operation = new PutOperation
            {
                Key = put.Key,
                KeepExpiry = put.KeepExpiry,
                KeepOwner = put.KeepOwner,
                Sequence = put.Sequence,
                Owner = put.Owner,
            };
            if (put.HasTtlMs)
                operation.TtlMs = put.TtlMs;
            var write = new WriteRequest { WithResults = true, Operations = { new Operation { Put = operation } } };
            Assert.Equal("BAD_REQUEST", await ReasonAsync(() => kv.WriteAsync(write)));
        }
        Assert.False((await kv.GetAsync(new GetRequest { Key = Utf8("k") })).Found);
    }

    private static void AssertHour(KvLife life)
    {
        Assert.NotNull(life.Left);
        Assert.InRange(life.Left.Value, TimeSpan.FromMinutes(30), TimeSpan.FromHours(1));
    }

    private static async Task<string> ReasonAsync<T>(Func<AsyncUnaryCall<T>> call) =>
        (await Assert.ThrowsAsync<RpcException>(async () => await call())).GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason;

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);

    private KvClient ClientOf(bool byRouter) =>
        new(new KvClientOptions { Endpoints = [byRouter ? _router.Address : _cluster.AddressOf(1)], Gateway = byRouter, Timeout = Eventually.Limit });
}
