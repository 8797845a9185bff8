using System.Runtime.CompilerServices;
using Google.Protobuf;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Tests.Grpc;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>
/// What the client library allocates for a call, apart from its connection: the encoded request. A get allocated three times as much as a put, for its message
/// objects and for methods that wait.
/// </summary>
[Collection(AloneCollection.Name)]
public sealed class ClientAllocationTests
{
    private const int Calls = 5_000;
    private const int ValueBytes = 100;
    private static readonly KvKey Key = "0123456789abcdef";
    private static readonly KvValue Value = new byte[ValueBytes];

    [Fact]
    public async Task Get_AllocatesItsRequest()
    {
        await using var client = Connect();
        Assert.True((await client.GetAsync(Key)).Found);
        await LeastAllocated.IsAtMostAsync(Calls * 128L, () => ManyAsync(async () =>
        {
            for (var call = 0; call < Calls; call++)
                await client.GetAsync(Key);
        }));
    }

    [Fact]
    public async Task Put_AllocatesItsRequest()
    {
        await using var client = Connect();
        await client.PutAsync(Key, Value);
        await LeastAllocated.IsAtMostAsync(Calls * (ValueBytes + 160L), () => ManyAsync(async () =>
        {
            for (var call = 0; call < Calls; call++)
                await client.PutAsync(Key, Value);
        }));
    }

    private static KvClient Connect() =>
        new(new KvClientOptions { Endpoints = [AnsweringNode.Address], Timeout = Eventually.Limit }, new AnsweringNode(), ClientRuntime.Machine);

    // Without the context of a test, to which each wait would post an object.
    private static Task ManyAsync(Func<Task> calls) => Task.Run(calls);

    /// <summary>Answers each call later, as a node does, with a response that exists.</summary>
    private sealed class AnsweringNode : INodeConnector, INodeConnection
    {
        public const string Address = "http://node-1:7400";

        private static readonly Position At = new() { Shard = 1, Etag = new V1.Etag { Epoch = 1, Change = 1 } };
        private static readonly Reply Changed = Of(new PutResponse { Position = At });
        private static readonly Reply Opened = Of(new OpenSessionResponse { Position = At, Session = ByteString.CopyFrom(new byte[16]) });
        private static readonly Reply Found = Of(new GetResponse { Position = At, Found = true, Value = ByteString.CopyFrom(Value.Span), Etag = At.Etag });

        public bool IsPaused => false;

        public INodeConnection Connect(string address) => this;

        public async IAsyncEnumerable<V1.ShardMap> WatchMap(string address, [EnumeratorCancellation] CancellationToken cancellationToken)
        {
            yield return new V1.ShardMap
            {
                Cluster = "answering",
                ClusterId = "1",
                Complete = true,
                Shards = { new ShardRoute { Shard = 1, Generation = 1, Epoch = 1, Leader = 1, Nodes = { 1 } } },
                Nodes = { new NodeAddress { Node = 1, Address = Address } },
            };
            await Task.Delay(Timeout.InfiniteTimeSpan, cancellationToken);
        }

        [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
        public async ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken)
        {
            await Task.Yield();
            var reply = call.Method switch
            {
                Method.Get => Found,
                Method.OpenSession => Opened,
                _ => Changed,
            };
            Assert.True(call.Progress.TrySend() && call.Progress.TryReply());
            call.Return();
            return new CallAnswer(reply, true, null, false);
        }

        public ValueTask DisposeAsync() => ValueTask.CompletedTask;

        private static Reply Of(IMessage response) => new() { Response = response.ToByteString() };
    }
}
