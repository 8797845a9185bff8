using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Node.Api;
using KvCluster.Node.Hosting;
using KvCluster.Node.Telemetry;
using KvCluster.Serving;
using KvCluster.Tests.Grpc;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Node;

/// <summary>An exchange whose calls end with exceptions that nobody expects.</summary>
public sealed class KvExchangeTests
{
    /// <summary>Such a call was never answered, its place never came back, and its exception broke the stream for all other calls.</summary>
    [Fact]
    public async Task Call_ThatEndsWithABug_IsAnsweredInternalAndTheStreamGoesOn()
    {
        // Without shards every call that looks for one fails.
        await using var metrics = new NodeMetrics(new NodeIdentity("local", "", 1, 1, ""), shardSeriesMax: 0);
        var lookup = new ShardLookup(1, null!, metrics.Activity.Hot);
        var calls = new KvCalls(lookup, new ReadOpener(lookup, TimeProvider.System), metrics, TimeProvider.System);
        var responses = new Responses();
        var exchange = new KvExchange(calls, TimeProvider.System, responses, NullLogger.Instance, CancellationToken.None);
        var key = ByteString.CopyFromUtf8("k");
        await exchange.RunAsync(new Requests(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = Method.Get, Request = new GetRequest { Key = key }.ToByteString() },
                new Call { Id = 2, Method = Method.Put, Request = new PutRequest { Key = key }.ToByteString() },
                new Call { Id = 3, Method = Method.Get, Request = new GetRequest().ToByteString() },
            },
        })).WaitAsync(Eventually.Limit);
        var reasons = responses.Replies.OrderBy(reply => reply.Id).Select(reply => Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!);
        Assert.Equal([("INTERNAL", "no"), ("INTERNAL", "unknown"), ("KEY_EMPTY", "no")], reasons.Select(info => (info.Reason, info.Metadata["applied"])));
    }

    private sealed class Requests(params ExchangeRequest[] messages) : IAsyncStreamReader<MessageBytes>
    {
        private int _next;

        public MessageBytes Current { get; private set; } = null!;

        public Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (_next == messages.Length)
                return Task.FromResult(false);
            Current = MessageBytes.Rent();
            Current.Append(messages[_next++].ToByteArray());
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
