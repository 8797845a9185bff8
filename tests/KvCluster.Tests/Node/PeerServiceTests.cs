using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Who may open a stream to a node.</summary>
public sealed class PeerServiceTests
{
    [Fact]
    public async Task Connect_WithAWrongHello_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var record = RecordText.Parse<ClusterRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value!);
        var good =
            new PeerHello { ClusterId = record.ClusterId, Node = 2, Levels = ProgramLevels.Current.ToMessage(), Incarnation = 1, Lineage = record.Lineage };
        Assert.Equal(record.ClusterId, (await ConnectAsync(cluster, new PeerMessage { Hello = good })).ClusterId);

        // A later version that still supports the level in force.
        var later = good.Clone();
        (later.Levels.Format.Max, later.Levels.Contract.Max) = (good.Levels.Format.Max + 1, good.Levels.Contract.Max + 1);
        Assert.Equal(
            (1u, good.Levels.Format.Max),
            (await ConnectAsync(cluster, new PeerMessage { Hello = later })).Levels.Format is var range ? (range.Min, range.Max) : default);

        var otherCluster = good.Clone();
        otherCluster.ClusterId = "other";
        var otherLevel = good.Clone();
        (otherLevel.Levels.Format.Min, otherLevel.Levels.Format.Max) = (record.FormatLevel + 1, record.FormatLevel + 1);
        var noLevels = good.Clone();
        noLevels.Levels = null;
        var otherLineage = good.Clone();
        otherLineage.Lineage = Lineage.Create().ToByteString();
        var lesserNode = good.Clone();
        lesserNode.Node = 1;
        await RefusedAsync(StatusCode.FailedPrecondition, new PeerMessage { Hello = otherCluster });
        await RefusedAsync(StatusCode.FailedPrecondition, new PeerMessage { Hello = otherLevel });
        await RefusedAsync(StatusCode.FailedPrecondition, new PeerMessage { Hello = noLevels });
        await RefusedAsync(StatusCode.FailedPrecondition, new PeerMessage { Hello = otherLineage });
        await RefusedAsync(StatusCode.FailedPrecondition, new PeerMessage { Hello = lesserNode });
        await RefusedAsync(StatusCode.InvalidArgument, new PeerMessage { Frames = { new Frame() } });

        async Task RefusedAsync(StatusCode code, PeerMessage first) =>
            Assert.Equal(code, (await Assert.ThrowsAsync<RpcException>(() => ConnectAsync(cluster, first))).StatusCode);
    }

    /// <summary>Each port served the other's calls, so anybody could open a stream with messages as large as nodes send.</summary>
    [Fact]
    public async Task Connect_OnThePortForClients_IsNotServed()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        using var call = new Internal.V1.Replication.ReplicationClient(cluster.ChannelOf(1).Calls()).Connect();
        Assert.Equal(StatusCode.Unimplemented, (await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext(CancellationToken.None))).StatusCode);
        using var peers = GrpcChannel.ForAddress(cluster.PeerAddressOf(1));
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await new Kv.KvClient(peers.Calls()).GetAsync(new GetRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("k") }));
        Assert.Equal(StatusCode.Unimplemented, failure.StatusCode);
    }

    /// <summary>The stream ended with INTERNAL, as if this node had failed.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Connect_WithMalformedBytes_EndsWithInvalidArgument(bool afterTheHello)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var record = RecordText.Parse<ClusterRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value!);
        using var limit = new CancellationTokenSource(Eventually.Limit);
        using var channel = GrpcChannel.ForAddress(cluster.PeerAddressOf(1));
        var bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);
        using var call = channel.CreateCallInvoker().AsyncDuplexStreamingCall(
            new Method<byte[], byte[]>(MethodType.DuplexStreaming, "kvcluster.internal.v1.Replication", "Connect", bytes, bytes),
            null, new CallOptions(cancellationToken: limit.Token));
        if (afterTheHello)
        {
            var hello =
                new PeerHello { ClusterId = record.ClusterId, Node = 2, Levels = ProgramLevels.Current.ToMessage(), Incarnation = 1, Lineage = record.Lineage };
            await call.RequestStream.WriteAsync(new PeerMessage { Hello = hello }.ToByteArray());
            Assert.True(await call.ResponseStream.MoveNext(limit.Token));
        }
        await call.RequestStream.WriteAsync([0xFF, 0xFF, 0xFF]);
        var failure = await Assert.ThrowsAsync<RpcException>(async () =>
        {
            while (await call.ResponseStream.MoveNext(limit.Token))
                continue;
        });
        Assert.Equal(StatusCode.InvalidArgument, failure.StatusCode);
    }

    private static async Task<PeerHello> ConnectAsync(NodeCluster cluster, PeerMessage first)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        using var channel = GrpcChannel.ForAddress(cluster.PeerAddressOf(1));
        using var call = new Internal.V1.Replication.ReplicationClient(channel.Calls()).Connect(cancellationToken: limit.Token);
        await call.RequestStream.WriteAsync(first);
        Assert.True(await call.ResponseStream.MoveNext(limit.Token));
        return call.ResponseStream.Current.Hello;
    }
}
