using Google.Protobuf;
using KvCluster.Client;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Router.Api;
using KvCluster.Router.Telemetry;
using KvCluster.Tests.Client;
using KvCluster.Tls;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Router;

/// <summary>
/// How often the client library and a router search the shard map. A router found the shard of a call's key when the call arrived, again for each of its keys
/// and again when it was sent; and a load's keys when it divided them and again when it sent the parts.
/// </summary>
public sealed class KeySearchTests : IAsyncLifetime
{
    private readonly RouterMetrics _metrics = new();
    private FakeCluster _cluster = null!;
    private KvClientOptions _options = null!;
    private CallRouter _calls = null!;
    private Forwarding _forwarding = null!;

    private long Searches => _calls.Table.Counts.Hits + _calls.Table.Counts.Misses;

    public async Task InitializeAsync()
    {
        _cluster = await FakeCluster.StartAsync(3, "g", "p");
        _options = new KvClientOptions { Endpoints = [_cluster.Endpoint], Timeout = Eventually.Limit };
        _calls = new CallRouter(_options, new GrpcConnector(new TlsConnector(files: null), callsInFlightMax: 100, NullLogger.Instance), ClientRuntime.Machine);
        _forwarding = new Forwarding(_calls, _metrics, new LargeReplies());
        Assert.True(await _calls.WaitForMapAsync(_calls.DeadlineFromNow(), CancellationToken.None));
    }

    public async Task DisposeAsync()
    {
        await _calls.DisposeAsync();
        _metrics.Dispose();
        await _cluster.DisposeAsync();
    }

    [Fact]
    public async Task Router_SearchesTheKeyOfACallOnce()
    {
        var before = Searches;
        Assert.Null((await ForwardAsync(Method.Put, PutOf("h"))).Error);
        Assert.Equal(before + 1, Searches);
        Assert.Null((await ForwardAsync(Method.Get, new GetRequest { Key = ByteString.CopyFromUtf8("h") })).Error);
        Assert.Equal(before + 2, Searches);
        Assert.Null((await ForwardAsync(Method.Write, WriteOf("h", "i", "j"))).Error);
        Assert.Equal(before + 5, Searches);
    }

    [Fact]
    public async Task Router_SearchesTheKeysOfALoadOnce()
    {
        var before = Searches;
        var parts = PartsBy(_calls.Table, "a", "b", "h", "i", "q");
        Assert.Equal(before + 5, Searches);
        foreach (var part in parts.Batches)
            Assert.Null((await ForwardAsync(part.Request, RequestRoute.Of(part))).Error);
        Assert.Equal(before + 5, Searches);
        Assert.Equal(5, _cluster.Applied.Count);
    }

    /// <summary>Puts are divided by one map, and sent by a later one.</summary>
    [Fact]
    public async Task Router_WithPutsThatAnOlderMapHadInOneShard_SendsNone()
    {
        using var older = new RouteTable(ClientRuntime.Machine);
        Assert.True(older.TryFold(new V1.ShardMap { Complete = true, Shards = { new ShardRoute { Shard = 1, Leader = 1, Generation = 1 } } }, out _));
        var part = Assert.Single(PartsBy(older, "a", "h").Batches);
        var reply = await ForwardAsync(part.Request, RequestRoute.Of(part));
        Assert.Equal(CallStatus.ShardsDiffer, CallStatus.ReasonOf(reply.Error!));
        Assert.Empty(_cluster.Applied);
    }

    [Fact]
    public async Task Client_SearchesTheKeyOfAChangeOnce()
    {
        var client = new ClientCalls(_options, _calls);
        var key = "h"u8.ToArray();
        // The first one opens a session.
        await client.ChangeAsync(Method.Put, key, PutOf("h"), client.TermsOf(null), CancellationToken.None);
        var before = Searches;
        await client.ChangeAsync(Method.Put, key, PutOf("h"), client.TermsOf(null), CancellationToken.None);
        Assert.Equal(before + 1, Searches);
        await client.EndSessionsAsync();
    }

    [Fact]
    public void Client_SearchesNoKeyForTheOptionsOfARead_UnlessTheyNameItsShard()
    {
        var client = new ClientCalls(_options, _calls);
        var before = Searches;
        Assert.Null(client.ReadOptionsOf(KvReadMode.Leader, "h"u8));
        Assert.Equal(ReadMode.Stale, client.ReadOptionsOf(KvReadMode.Stale, "h"u8)!.Mode);
        Assert.Equal(before, Searches);
        client.Seen.Raise(new ShardPosition(1, new Etag(1, 1)));
        client.Seen.Raise(new ShardPosition(2, new Etag(1, 2)));
        Assert.Equal(2u, Assert.Single(client.ReadOptionsOf(KvReadMode.Session, "h"u8)!.Seen).Shard);
        Assert.Equal(before + 1, Searches);
    }

    private static PutParts PartsBy(RouteTable table, params string[] keys)
    {
        var parts = new PutParts(table, capacity: 100);
        foreach (var key in keys)
            parts.Add(System.Text.Encoding.UTF8.GetBytes(key), "v"u8);
        return parts;
    }

    private static PutRequest PutOf(string key) => new() { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8("v") };

    private static WriteRequest WriteOf(params string[] keys) => new()
    {
        Operations = { keys.Select(static key => new Operation { Put = new PutOperation { Key = ByteString.CopyFromUtf8(key) } }) },
    };

    private Task<RoutedReply> ForwardAsync(Method method, IMessage request)
    {
        var encoded = request.ToByteString();
        return ForwardAsync(encoded, _forwarding.RouteOf(method, encoded.Span));
    }

    private Task<RoutedReply> ForwardAsync(ByteString request, RequestRoute route) =>
        _forwarding.CallAsync(request, route, null, _calls.DeadlineFromNow(), "ipv4:127.0.0.1:1", new NoRoom(), CancellationToken.None).AsTask();

    /// <summary>No response is large.</summary>
    private sealed class NoRoom : IReplyRoom
    {
        public ValueTask<bool> HoldAsync(int bytes, long deadlineMs, CancellationToken cancellationToken) => throw new NotSupportedException();

        public void Release() => throw new NotSupportedException();

        public bool MayRespond(int bytes) => throw new NotSupportedException();
    }
}
