using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Router;
using KvCluster.Router.Api;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Tests.Client;
using KvCluster.Tests.Client.Recipes;
using KvCluster.Tests.ServiceDefaults.Security;
using KvCluster.V1;
using KvCluster.Wire;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Router;

/// <summary>The calls of one exchange through a router, without its server.</summary>
public sealed class ExchangeProxyTests
{
    /// <summary>The exception broke the stream, and with it the calls of all callers of the connection.</summary>
    [Fact]
    public async Task Call_ThatMeetsABug_IsRefused_AndTheOthersGoOn()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var network = new HostileNetwork
        {
            Before = static method => method is Method.Get or Method.Put ? throw new InvalidOperationException("a bug") : Task.CompletedTask,
        };
        await using var calls = new CallRouter(
            new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = Eventually.Limit }, network, ClientRuntime.Machine);
        Assert.True(await calls.WaitForMapAsync(calls.DeadlineFromNow(), CancellationToken.None));
        using var metrics = new RouterMetrics();
        var memory = new CallMemory(CallMemory.MebibytesDefault);
        var (log, responses) = (new LinesLog(), new Responses());
        using var exchange = new ExchangeProxy(
            new Forwarding(calls, metrics, new LargeReplies()),
            new RouterOptions { Listen = "", Seeds = [], Timeout = Eventually.Limit },
            new ExchangePlaces(memory.Requests), memory, log, responses, "ipv4:127.0.0.1:1", CancellationToken.None);
        var key = ByteString.CopyFromUtf8("k");
        var write = new WriteRequest { Operations = { new Operation { Put = new PutOperation { Key = key } } } };
        await exchange.RunAsync(new OneMessage(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = Method.Get, Request = new GetRequest { Key = key }.ToByteString() },
                new Call { Id = 2, Method = Method.Put, Request = new PutRequest { Key = key }.ToByteString() },
                new Call { Id = 3, Method = Method.Write, Request = write.ToByteString() },
            },
        })).WaitAsync(Eventually.Limit);
        Assert.Equal(
            [(1ul, "INTERNAL no"), (2ul, "OUTCOME_UNKNOWN unknown"), (3ul, "")],
            responses.Replies.OrderBy(static reply => reply.Id).Select(static reply => (reply.Id, TextOf(reply))));
        Assert.Equal(1, cluster.Applied["k"]);
        Assert.Equal(
            ["Error: A call of Get ended with an unexpected exception", "Error: A call of Put ended with an unexpected exception"],
            log.Lines.Order(StringComparer.Ordinal));
    }

    /// <summary>Callers were not told when to call again, and did within milliseconds.</summary>
    [Fact]
    public async Task Call_WithoutAPlace_IsRefusedWithATimeToWait_LikeThoseWithoutMemory()
    {
        await using var calls = new CallRouter(
            new KvClientOptions { Endpoints = ["http://127.0.0.1:1"], Timeout = Eventually.Limit }, new HostileNetwork(), ClientRuntime.Machine);
        using var metrics = new RouterMetrics();
        var memory = new CallMemory(CallMemory.MebibytesDefault);
        var responses = new Responses();
        using var exchange = new ExchangeProxy(
            new Forwarding(calls, metrics, new LargeReplies()),
            new RouterOptions { Listen = "", Seeds = [], Timeout = Eventually.Limit },
            new ExchangePlaces(memory.Requests, callsMax: 0), memory, new LinesLog(), responses, "ipv4:127.0.0.1:1", CancellationToken.None);
        var get = new GetRequest { Key = ByteString.CopyFromUtf8("k") }.ToByteString();
        await exchange.RunAsync(new OneMessage(new ExchangeRequest { Calls = { new Call { Id = 1, Method = Method.Get, Request = get } } }))
            .WaitAsync(Eventually.Limit);
        var ofPlaces = Google.Rpc.Status.Parser.ParseFrom(Assert.Single(responses.Replies).Status);
        Assert.All((Google.Rpc.Status[])[ofPlaces, KvProxy.RequestsWait, KvProxy.RepliesWait], static refusal =>
        {
            Assert.Equal("BUSY", CallStatus.ReasonOf(refusal));
            Assert.InRange(CallStatus.RetryDelayOf(refusal), TimeSpan.FromMilliseconds(1), TimeSpan.FromSeconds(1));
        });
    }

    private static string TextOf(Reply reply) => reply.Code == 0 ? ""
        : Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>() is { } info ? $"{info.Reason} {info.Metadata["applied"]}" : "no reason";

    private sealed class OneMessage(ExchangeRequest message) : IAsyncStreamReader<MessageBytes>
    {
        private bool _isRead;

        public MessageBytes Current { get; private set; } = null!;

        public Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (_isRead)
                return Task.FromResult(false);
            _isRead = true;
            Current = MessageBytes.Rent();
            Current.Append(message.ToByteArray());
            return Task.FromResult(true);
        }
    }

    private sealed class Responses : IServerStreamWriter<MessageBytes>
    {
        public List<Reply> Replies { get; } = [];

        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message) => WriteAsync(message, CancellationToken.None);

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken)
        {
            Replies.AddRange(ExchangeResponse.Parser.ParseFrom(message.Written).Replies);
            message.Return();
            return Task.CompletedTask;
        }
    }
}
