using System.Collections.Concurrent;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client.Transport;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Tests.Client;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Router;

/// <summary>Reads with large responses through a router, with shards that cannot answer or values that grow while the reads wait.</summary>
public sealed class LargeReadTests : IAsyncLifetime
{
    private const int Value = 8 << 20;

    private FakeCluster _cluster = null!;
    private RouterHost _router = null!;
    private GrpcChannel _channel = null!;
    private Kv.KvClient _kv = null!;

    public async Task InitializeAsync()
    {
        // "a" belongs to shard 1 on node 1, "h" to shard 2, "q" to shard 3.
        _cluster = await FakeCluster.StartAsync(3, "g", "p");
        // The memory suffices for the answers to all calls of a test at once.
        _router = await StartAsync(mebibytes: 1_024);
        _channel = GrpcChannel.ForAddress(_router.Address, new GrpcChannelOptions { MaxReceiveMessageSize = null });
        _kv = new Kv.KvClient(_channel.Calls());
    }

    public async Task DisposeAsync()
    {
        _channel.Dispose();
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    /// <summary>
    /// Reads that knew the size of their responses kept the router's memory for large responses while their shard had no leader, up to their
    /// deadlines. No large value of another shard was read. Reads of an exchange kept the memory of their stream as well.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Gets_OfLargeValuesOfALeaderlessShard_DoNotBlockThoseOfOthers(bool byExchange)
    {
        const int Asked = 4;
        Put("a", Value);
        Put("q", Value);
        var (small, refused) = (0, 0);
        _cluster.Nodes[0].Script = async call =>
        {
            if (IsSmall(call) && Interlocked.Increment(ref small) <= Asked)
                return null;
            // The leader is lost after all reads have learned the size.
            await Eventually.TrueAsync(() => Volatile.Read(ref small) >= Asked, "the reads ask for the size");
            Interlocked.Increment(ref refused);
            return FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER");
        };
        using var stream = _kv.Exchange();
        var waiting = new List<Task<int>>();
        if (byExchange)
        {
            await stream.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls = { Enumerable.Range(1, Asked).Select(id => new Call { Id = (ulong)id, Method = Method.Get, Request = Get("a").ToByteString() }) }
            });
            await Eventually.TrueAsync(() => Volatile.Read(ref refused) > Asked, "the reads are repeated");
            await stream.RequestStream.WriteAsync(
                new ExchangeRequest { Calls = { new Call { Id = 100, Method = Method.Get, Request = Get("q").ToByteString() } } });
            Assert.Equal(100ul, (await NextAsync(stream)).Id);
        }
        else
        {
            waiting.AddRange(Enumerable.Range(0, Asked).Select(async _ => (await _kv.GetAsync(Get("a"))).Value.Length));
            await Eventually.TrueAsync(() => Volatile.Read(ref refused) > Asked, "the reads are repeated");
            Assert.Equal(Value, (await _kv.GetAsync(Get("q"), deadline: DateTime.UtcNow + Eventually.Limit)).Value.Length);
        }
        Assert.All(waiting, call => Assert.False(call.IsCompleted));
        _cluster.Nodes[0].Script = null;
        for (var left = byExchange ? Asked : 0; left > 0; left--)
            Assert.Equal(Value, GetResponse.Parser.ParseFrom((await NextAsync(stream)).Response).Value.Length);
        Assert.All(await Task.WhenAll(waiting), bytes => Assert.Equal(Value, bytes));
    }

    /// <summary>
    /// Reads waited with the size known when they were sent. Five hundred reads of a value of 65 KiB were started at once, and fetched 8 MiB each if
    /// the value had grown to that.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Gets_OfAGrowingValue_WaitForTheirTurnWithItsRealSize(bool byExchange)
    {
        const int Asked = 6;
        Put("a", 70_000);
        var grown = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var release = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var brought = new ConcurrentQueue<uint>();
        var first = 0;
        _cluster.Nodes[0].Script = async call =>
        {
            if (IsSmall(call))
                return null;
            Interlocked.Increment(ref first);
            await grown.Task;
            if (call.ReplyBytesMax is > 0 and < Value)
                return null;
            brought.Enqueue(call.ReplyBytesMax);
            await release.Task;
            return null;
        };
        using var stream = _kv.Exchange();
        var waiting = new List<Task<int>>();
        if (byExchange)
            await stream.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls = { Enumerable.Range(1, Asked).Select(id => new Call { Id = (ulong)id, Method = Method.Get, Request = Get("a").ToByteString() }) }
            });
        else
            waiting.AddRange(Enumerable.Range(0, Asked).Select(async _ => (await _kv.GetAsync(Get("a"))).Value.Length));
        await Eventually.TrueAsync(() => Volatile.Read(ref first) == Asked, "all of them are fetched, because they are small enough");
        Put("a", Value);
        grown.SetResult();
        await Eventually.TrueAsync(() => brought.Count >= 2, "they are requested with their real size");
        // Other large reads wait for their turn; small ones do not.
        Assert.False((await _kv.GetAsync(Get("b"))).Found);
        Assert.InRange(brought.Sum(bytes => bytes == 0 ? int.MaxValue : bytes), 1, 32 << 20);
        release.SetResult();
        for (var left = byExchange ? Asked : 0; left > 0; left--)
            Assert.Equal(Value, GetResponse.Parser.ParseFrom((await NextAsync(stream)).Response).Value.Length);
        Assert.All(await Task.WhenAll(waiting), bytes => Assert.Equal(Value, bytes));
    }

    /// <summary>
    /// The parts of a GetMany had no limits of their own. With one large value, each shard could add any amount to what was reserved for the sum.
    /// </summary>
    [Fact]
    public async Task GetMany_OfGrowingParts_FetchesNoMoreThanIsReserved()
    {
        Put("a", 100_000);
        Put("h", 10);
        Put("q", 200_000);
        var large = new ConcurrentQueue<(uint Node, uint BytesMax)>();
        foreach (var node in _cluster.Nodes)
        {
            node.Script = call =>
            {
                if (!IsSmall(call))
                {
                    large.Enqueue((node.Id, call.ReplyBytesMax));
                    // After the node has reported the size.
                    if (node.Id == 2 && large.Count(seen => seen.Node == 2) == 1)
                        Put("h", 300_000);
                }
                return Task.FromResult<Reply?>(null);
            };
        }
        var response = await _kv.GetManyAsync(new GetManyRequest { Keys = { new[] { "q", "h", "a", "b" }.Select(ByteString.CopyFromUtf8) } });
        Assert.Equal([200_000, 300_000, 100_000, 0], response.Entries.Select(entry => entry.Value.Length));
        var ofNodes = large.GroupBy(seen => seen.Node).OrderBy(node => node.Key).Select(node => node.Select(seen => seen.BytesMax).ToList()).ToList();
        Assert.Equal([2, 2, 2], ofNodes.Select(node => node.Count));
        Assert.All(ofNodes[0], bytesMax => Assert.InRange(bytesMax, 100_000u, 120_000u));
        Assert.InRange(ofNodes[1][0], 10u, 5_000u);
        Assert.InRange(ofNodes[1][1], 300_000u, 350_000u);
        Assert.All(ofNodes[2], bytesMax => Assert.InRange(bytesMax, 200_000u, 240_000u));
    }

    /// <summary>
    /// Each shard's part of a GetMany carried all positions that the caller had seen. In a router of a hundred shards, a request of one megabyte
    /// became ninety.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task GetMany_WithPositionsOfManyShards_SendsEachShardOnlyItsOwn(bool isSession)
    {
        var mode = isSession ? ReadMode.Session : ReadMode.Replica;
        var read = new ReadOptions { Mode = mode };
        for (var shard = 1u; shard <= 5; shard++)
            read.Seen.Add(new Position { Shard = shard, Etag = new V1.Etag { Epoch = 1, Change = shard } });
        read.Seen.Add(new Position { Shard = 2, Etag = new V1.Etag { Epoch = 1, Change = 77 } });
        var response = await _kv.GetManyAsync(new GetManyRequest { Keys = { new[] { "q", "h", "a" }.Select(ByteString.CopyFromUtf8) }, Read = read });
        Assert.Equal(3, response.Entries.Count);
        var parts = _cluster.Nodes.SelectMany(node => node.Calls)
            .Select(call => GetManyRequest.Parser.ParseFrom(call.Request)).OrderBy(part => part.Keys[0].ToStringUtf8()).ToList();
        Assert.Equal(["a", "h", "q"], parts.Select(part => Assert.Single(part.Keys).ToStringUtf8()));
        Assert.All(parts, part => Assert.Equal(mode, part.Read.Mode));
        Assert.Equal(isSession ? [1, 2, 77, 3] : [], parts.SelectMany(part => part.Read.Seen).Select(position => position.Etag.Change));
    }

    /// <summary>
    /// A GetMany of 64 KiB counted as 64 KiB but took four megabytes for its positions. A few hundred of them filled a router's memory, and counted
    /// as small requests.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task GetManys_WithManyPositions_CountWithTheMemoryTheyTake(bool byExchange)
    {
        // A quarter of the smallest memory limit; three quarters of it are for large requests: 24 MiB.
        const int Asked = 12;
        await using var router = await StartAsync(mebibytes: CallMemory.MebibytesMin);
        using var channel = GrpcChannel.ForAddress(router.Address);
        var kv = new Kv.KvClient(channel.Calls());
        foreach (var node in _cluster.Nodes)
            node.Script = static _ => Task.FromResult<Reply?>(FakeNode.Silence);
        var request = new GetManyRequest { Keys = { ByteString.CopyFromUtf8("a") }, Read = new ReadOptions { Mode = ReadMode.Session } };
        request.Read.Seen.AddRange(Enumerable.Range(0, RequestLimits.PositionsMax).Select(_ => new Position()));
        using var given = new CancellationTokenSource();
        using var stream = kv.Exchange(cancellationToken: given.Token);
        var refused = 0;
        if (byExchange)
        {
            for (var id = 1ul; id <= Asked; id++)
                await stream.RequestStream.WriteAsync(
                    new ExchangeRequest { Calls = { new Call { Id = id, Method = Method.GetMany, Request = request.ToByteString() } } });
            Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            Assert.All(stream.ResponseStream.Current.Replies, reply => Assert.Equal((int)StatusCode.Unavailable, reply.Code));
            return;
        }
        var calls = Enumerable.Range(0, Asked).Select(async _ =>
        {
            var failure = await Assert.ThrowsAsync<RpcException>(() => kv.GetManyAsync(request, cancellationToken: given.Token).ResponseAsync);
            if (failure.StatusCode == StatusCode.Unavailable)
                Interlocked.Increment(ref refused);
        }).ToList();
        // There is space for five requests of four megabytes, or fewer if two arrive at the same moment.
        await Eventually.TrueAsync(() => Volatile.Read(ref refused) >= Asked - 5, "the others are refused");
        await given.CancelAsync();
        await Task.WhenAll(calls);
        Assert.InRange(refused, Asked - 5, Asked - 1);
    }

    private static bool IsSmall(Call call) => call.ReplyBytesMax == CallRouter.SmallReplyBytes;

    private static GetRequest Get(string key) => new() { Key = ByteString.CopyFromUtf8(key) };

    private static async Task<Reply> NextAsync(AsyncDuplexStreamingCall<ExchangeRequest, ExchangeResponse> stream)
    {
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        var reply = Assert.Single(stream.ResponseStream.Current.Replies);
        Assert.Equal(0, reply.Code);
        return reply;
    }

    private Task<RouterHost> StartAsync(int mebibytes) => RouterHost.StartAsync(
        new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [_cluster.Nodes[1].Address], Timeout = Eventually.Limit, CallMemoryMebibytes = mebibytes },
        new ProcessHealth(),
        NullLoggerFactory.Instance,
        CancellationToken.None);

    private void Put(string key, int bytes) => _cluster.Write(
        [], [new Operation { Put = new PutOperation { Key = ByteString.CopyFromUtf8(key), Value = UnsafeByteOperations.UnsafeWrap(new byte[bytes]) } }]);
}
