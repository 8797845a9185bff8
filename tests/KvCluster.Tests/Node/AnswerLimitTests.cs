using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Node;

/// <summary>The limits of answers that kv.proto documents, with values up to the largest, at a node and through a router.</summary>
public sealed class AnswerLimitTests(AnswerLimitTests.TwoShards cluster) : IClassFixture<AnswerLimitTests.TwoShards>
{
    private const int MessageBytesMax = 4 << 20;

    // Two shards, divided at "k". Small entries, and others that nearly fill a message, fill it, and exceed it.
    private static readonly (string Key, int ValueBytes)[] Entries =
    [
        ("a", 100_000), ("b", (4 << 20) - 70_000), ("c", 10), ("d", 8 << 20), ("e", 20_000), ("f", 4 << 20), ("g", 1), ("h", 8 << 20),
        ("k", 120_000), ("l", 8 << 20), ("m", (4 << 20) - 4_096), ("n", 3),
    ];

    /// <summary>
    /// A page was filled to 128 KiB plus one entry. With an entry of nearly 4 MiB it exceeded the limit of a client that would have accepted each
    /// entry alone.
    /// </summary>
    [Theory]
    [InlineData(false, false)]
    [InlineData(false, true)]
    [InlineData(true, false)]
    [InlineData(true, true)]
    public async Task ScanPage_WithSeveralEntries_HasAtMost4MiB(bool byRouter, bool reverse)
    {
        var found = new List<(string, int)>();
        // A scan at a node ends with its shard.
        foreach (var request in byRouter ? [new ScanRequest()]
            : (ScanRequest[])[new() { End = ByteString.CopyFromUtf8("k") }, new() { Start = ByteString.CopyFromUtf8("k") }])
        {
            request.Reverse = reverse;
            using var scan = Kv(byRouter).Scan(request);
            var ofRequest = new List<(string, int)>();
            while (await scan.ResponseStream.MoveNext(CancellationToken.None))
            {
                var page = scan.ResponseStream.Current;
                Assert.True(page.Entries.Count == 1 || page.CalculateSize() <= MessageBytesMax, $"A page of {page.Entries.Count} entries has "
                    + $"{page.CalculateSize():N0} bytes.");
                ofRequest.AddRange(page.Entries.Select(entry => (entry.Key.ToStringUtf8(), entry.Value.Length)));
            }
            found.AddRange(reverse ? ofRequest.AsEnumerable().Reverse() : ofRequest);
        }
        Assert.Equal(Entries, byRouter || !reverse ? found.OrderBy(entry => entry.Item1, StringComparer.Ordinal) : found);
        Assert.Equal(Entries.Length, found.Count);
    }

    [Theory]
    [InlineData(1)]
    [InlineData(5)]
    public async Task ScanPages_OfALimitedScan_OmitNoEntry(ulong limit)
    {
        foreach (var byRouter in (bool[])[false, true])
        {
            using var scan = Kv(byRouter).Scan(new ScanRequest { Limit = limit });
            var found = new List<string>();
            while (await scan.ResponseStream.MoveNext(CancellationToken.None))
                found.AddRange(scan.ResponseStream.Current.Entries.Select(entry => entry.Key.ToStringUtf8()));
            Assert.Equal(Entries.Take((int)limit).Select(entry => entry.Key), found);
        }
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task UnaryAnswer_HasAtMost16MiB(bool byRouter)
    {
        var kv = Kv(byRouter);
        foreach (var (key, valueBytes) in Entries.Where(entry => entry.ValueBytes >= 4 << 20))
            Assert.Equal(valueBytes, (await kv.GetAsync(new GetRequest { Key = ByteString.CopyFromUtf8(key) })).Value.Length);
        // A node answers for keys of one shard only.
        var many = await kv.GetManyAsync(Many("a", "b", "d"));
        Assert.Equal([100_000, (4 << 20) - 70_000, 8 << 20], many.Entries.Select(entry => entry.Value.Length));
        await AssertTooLargeAsync(kv, Many("d", "h"));
        if (byRouter)
            await AssertTooLargeAsync(kv, Many("d", "l"));
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task ExchangeMessage_WithSeveralReplies_HasAtMost4MiB(bool byRouter)
    {
        using var exchange = Kv(byRouter).Exchange();
        var request = new ExchangeRequest();
        request.Calls.AddRange(Entries.Select((entry, index) =>
            new Call { Id = (ulong)index + 1, Method = Method.Get, Request = new GetRequest { Key = ByteString.CopyFromUtf8(entry.Key) }.ToByteString() }));
        request.Calls.Add(new Call { Id = 100, Method = Method.GetMany, Request = Many("a", "b", "d").ToByteString() });
        request.Calls.Add(new Call { Id = 101, Method = Method.GetMany, Request = Many("d", "h").ToByteString() });
        await exchange.RequestStream.WriteAsync(request);
        await exchange.RequestStream.CompleteAsync();
        var replies = new Dictionary<ulong, Reply>();
        while (await exchange.ResponseStream.MoveNext(CancellationToken.None))
        {
            var message = exchange.ResponseStream.Current;
            Assert.True(message.Replies.Count == 1 || message.CalculateSize() <= MessageBytesMax, $"A message of {message.Replies.Count} replies has "
                + $"{message.CalculateSize():N0} bytes.");
            foreach (var reply in message.Replies)
                replies.Add(reply.Id, reply);
        }
        for (var index = 0; index < Entries.Length; index++)
            Assert.Equal(Entries[index].ValueBytes, GetResponse.Parser.ParseFrom(replies[(ulong)index + 1].Response).Value.Length);
        Assert.Equal(3, GetManyResponse.Parser.ParseFrom(replies[100].Response).Entries.Count);
        Assert.Equal("ANSWER_TOO_LARGE", Google.Rpc.Status.Parser.ParseFrom(replies[101].Status).GetDetail<ErrorInfo>()!.Reason);
    }

    [Fact]
    public async Task Read_ResponseLargerThanTheCallAllows_IsRefusedWithItsSize()
    {
        using var exchange = Kv(byRouter: false).Exchange();
        var get = new GetRequest { Key = ByteString.CopyFromUtf8("d") }.ToByteString();
        var many = Many("a", "b").ToByteString();
        var whole = (uint)(await Kv(byRouter: false).GetManyAsync(Many("a", "b"))).CalculateSize();
        await exchange.RequestStream.WriteAsync(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = Method.Get, Request = get, ReplyBytesMax = 65_536 },
                new Call { Id = 2, Method = Method.GetMany, Request = many, ReplyBytesMax = 150_000 },
                new Call { Id = 3, Method = Method.GetMany, Request = many, ReplyBytesMax = whole },
                new Call { Id = 4, Method = Method.Get, Request = new GetRequest { Key = ByteString.CopyFromUtf8("e") }
                    .ToByteString(), ReplyBytesMax = 65_536 },
            },
        });
        await exchange.RequestStream.CompleteAsync();
        var replies = new Dictionary<ulong, Reply>();
        while (await exchange.ResponseStream.MoveNext(CancellationToken.None))
        {
            foreach (var reply in exchange.ResponseStream.Current.Replies)
                replies.Add(reply.Id, reply);
        }
        var refusals = replies.Values.Where(reply => reply.Id <= 2)
            .OrderBy(reply => reply.Id).Select(reply => Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!).ToList();
        Assert.All(refusals, info => Assert.Equal("REPLY_LARGE", info.Reason));
        Assert.InRange(int.Parse(refusals[0].Metadata["reply_bytes"], System.Globalization.CultureInfo.InvariantCulture), 8 << 20, (8 << 20) + 200);
        Assert.Equal(whole.ToString(System.Globalization.CultureInfo.InvariantCulture), refusals[1].Metadata["reply_bytes"]);
        Assert.Equal([0, 0], [replies[3].Code, replies[4].Code]);
    }

    private static GetManyRequest Many(params string[] keys) => new() { Keys = { keys.Select(ByteString.CopyFromUtf8) } };

    private static async Task AssertTooLargeAsync(Kv.KvClient kv, GetManyRequest request)
    {
        var failure = await Assert.ThrowsAsync<RpcException>(() => kv.GetManyAsync(request).ResponseAsync);
        Assert.Equal((StatusCode.ResourceExhausted, "ANSWER_TOO_LARGE"), (failure.StatusCode, failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason));
    }

    private Kv.KvClient Kv(bool byRouter) => byRouter ? new Kv.KvClient(cluster.Channel.Calls()) : cluster.Nodes.KvOf(1);

    /// <summary>A node with two shards and all entries, which the tests only read, and a router.</summary>
    public sealed class TwoShards : IAsyncLifetime
    {
        private RouterHost _router = null!;

        internal NodeCluster Nodes { get; private set; } = null!;

        internal GrpcChannel Channel { get; private set; } = null!;

        public async Task InitializeAsync()
        {
            Nodes = await NodeCluster.StartAsync(1, "k"u8.ToArray());
            _router = await RouterHost.StartAsync(
                new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = [Nodes.AddressOf(1)], Timeout = Eventually.Limit },
                new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
            Channel = GrpcChannel.ForAddress(_router.Address, new GrpcChannelOptions { MaxReceiveMessageSize = null });
            foreach (var (key, valueBytes) in Entries)
                await Nodes.PutAsync(
                    new PutRequest { Key = ByteString.CopyFromUtf8(key), Value = UnsafeByteOperations.UnsafeWrap(new byte[valueBytes]) },
                    key[0] < 'k' ? 0u : 1);
        }

        public async Task DisposeAsync()
        {
            Channel.Dispose();
            await _router.DisposeAsync();
            await Nodes.DisposeAsync();
        }
    }
}
