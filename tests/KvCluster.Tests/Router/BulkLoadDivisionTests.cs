using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Client;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Router;

/// <summary>A router divides the chunks of a load among their shards, and none overtakes another one with the same keys.</summary>
public sealed class BulkLoadDivisionTests : IAsyncLifetime
{
    private FakeCluster _cluster = null!;
    private RouterHost _router = null!;
    private GrpcChannel _channel = null!;
    private Kv.KvClient _kv = null!;

    public async Task InitializeAsync()
    {
        _cluster = await FakeCluster.StartAsync(3, "g", "p");
        var options = new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [_cluster.Endpoint], Timeout = Eventually.Limit };
        _router = await RouterHost.StartAsync(options, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        _channel = GrpcChannel.ForAddress(_router.Address);
        _kv = new Kv.KvClient(_channel.Calls());
    }

    public async Task DisposeAsync()
    {
        _channel.Dispose();
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    [Fact]
    public async Task Chunk_OfSeveralShards_IsOneWriteForEach_AndAcknowledgedOnce()
    {
        using var load = _kv.BulkLoad();
        await load.RequestStream.WriteAsync(Chunk(1, "q", "a", "h", "b"));
        await load.RequestStream.WriteAsync(Chunk(2, "r", "s"));
        await load.RequestStream.CompleteAsync();
        Assert.Equal((1ul, 1u), await NextAsync(load));
        Assert.Equal((2ul, 3u), await NextAsync(load));
        Assert.False(await load.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal([1, 1, 2], _cluster.Nodes.Select(node => node.CallsAsLeader.Count()));
        Assert.All(
            (string[])["q", "a", "h", "b", "r", "s"], key => Assert.Equal($"of {key}", _cluster.Get(ByteString.CopyFromUtf8(key).Span).Value.ToStringUtf8()));
    }

    [Fact]
    public async Task Chunk_WithKeysOfOneUnderWay_Waits_AndOneBehindThemDoesNot()
    {
        var held = new TaskCompletionSource<Reply?>(TaskCreationOptions.RunContinuationsAsynchronously);
        _cluster.Nodes[0].Script = call => _cluster.Nodes[0].Calls.Count == 1 ? held.Task : Task.FromResult<Reply?>(null);
        using var load = _kv.BulkLoad();
        await load.RequestStream.WriteAsync(Chunk(1, "b", "c"));
        await load.RequestStream.WriteAsync(Chunk(2, "d"));
        await Eventually.TrueAsync(() => _cluster.Nodes[0].CallsAsLeader.Count() == 2, "the chunk behind the first one is under way beside it");
        await load.RequestStream.WriteAsync(Chunk(3, "c"));
        // Its keys are behind those of the third, which waits, but not behind those of the first.
        await load.RequestStream.WriteAsync(Chunk(4, "cc", "d"));
        using var other = _kv.BulkLoad();
        await other.RequestStream.WriteAsync(Chunk(1, "x"));
        Assert.Equal((1ul, 3u), await NextAsync(other));
        Assert.Equal(2, _cluster.Nodes[0].CallsAsLeader.Count());
        held.SetResult(null);
        for (var chunk = 1ul; chunk <= 4; chunk++)
            Assert.Equal((chunk, 1u), await NextAsync(load));
        Assert.Equal(4, _cluster.Nodes[0].CallsAsLeader.Count());
    }

    [Fact]
    public async Task Chunk_OfWhichAPartIsRefused_SaysThatTheRestMayBeApplied()
    {
        _cluster.Nodes[1].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.ResourceExhausted, "DISK_FULL"));
        using var load = _kv.BulkLoad();
        await load.RequestStream.WriteAsync(Chunk(1, "a", "h"));
        await RefusedAsync(load, StatusCode.Unknown, "OUTCOME_UNKNOWN", "1 of 2 shards");
        using var refused = _kv.BulkLoad();
        await refused.RequestStream.WriteAsync(Chunk(1, "h"));
        await RefusedAsync(refused, StatusCode.ResourceExhausted, "DISK_FULL");
    }

    [Theory]
    [InlineData(2, 1, "BAD_REQUEST")]
    [InlineData(1, 0, "BAD_REQUEST")]
    [InlineData(1, 10_001, "TOO_MANY_OPERATIONS")]
    public async Task Chunk_ThatIsWrong_IsRefusedWithoutAskingANode(int number, int keys, string reason)
    {
        using var load = _kv.BulkLoad();
        await load.RequestStream.WriteAsync(Chunk(number, [.. Enumerable.Range(0, keys).Select(static key => $"a{key}")]));
        await RefusedAsync(load, StatusCode.InvalidArgument, reason);
        Assert.All(_cluster.Nodes, node => Assert.Empty(node.Calls));
    }

    private static BulkLoadRequest Chunk(int number, params string[] keys) => new()
    {
        Chunk = (ulong)number,
        Entries = { keys.Select(static key => new Entry { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8($"of {key}") }) },
    };

    private static async Task<(ulong Chunk, uint Shard)> NextAsync(AsyncDuplexStreamingCall<BulkLoadRequest, BulkLoadResponse> load)
    {
        Assert.True(await load.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        return (load.ResponseStream.Current.Chunk, load.ResponseStream.Current.Position.Shard);
    }

    private static Task RefusedAsync(AsyncDuplexStreamingCall<BulkLoadRequest, BulkLoadResponse> load, StatusCode code, string reason, string told = "") =>
        Refusal.ExpectAsync(() => load.ResponseStream.MoveNext(CancellationToken.None), code, reason, told);
}
