using System.Diagnostics;
using System.Net;
using System.Net.Sockets;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Internal.V1;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>False peers, and more waiting calls than usual, beside five client processes whose histories must be linearizable.</summary>
[Trait("Turn", "5")]
public sealed class HostileTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 150;

    // Far above what a node of an empty cluster takes, and far below what unbounded reading of the garbage would take.
    private const long NodeBytesMax = 700L << 20;

    // Far more than a busy machine causes, and nothing beside the epochs that are lied about.
    private const ulong ElectionsMax = 10_000;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F27_GarbageOnTheReplicationPort_DisturbsNothing()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var epoch = await cluster.EpochAsync();
        foreach (var endpoint in cluster.PeerEndpoints)
        {
            var port = new Uri(endpoint).Port;
            await SendRawAsync(port, RandomBytes(1 << 20));
            await SendRawAsync(port, [.. "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"u8, .. RandomBytes(1 << 20)]);
            using var channel = GrpcChannel.ForAddress(endpoint);
            var replication = new Internal.V1.Replication.ReplicationClient(channel.Calls());
            await UntilRefusedAsync(
                replication, StatusCode.InvalidArgument, new PeerMessage { Frames = { new Frame { Shard = 0, Epoch = ulong.MaxValue } } });
            await UntilRefusedAsync(
                replication, StatusCode.FailedPrecondition, new PeerMessage { Hello = new PeerHello { ClusterId = "another", Node = 9, Incarnation = 1 } });
            await UntilRefusedAsync(
                replication, StatusCode.ResourceExhausted, new PeerMessage { Hello = new PeerHello { ClusterId = new string('x', 40 << 20) } });
        }

        await histories.MoreChangesAsync(Some);
        Assert.All(cluster.Nodes, node => Assert.InRange(Process.GetProcessById(node.Id).WorkingSet64, 1, NodeBytesMax));
        // A busy machine may cause some elections. If the garbage were believed, its epoch would be the last one possible.
        Assert.InRange(await cluster.EpochAsync(), epoch, epoch + ElectionsMax);
        await shared.EndAsync();
    }

    /// <summary>
    /// The peer knows the cluster's id and replicas and sends frames in their name: from a node without replicas with possible epochs, and from the
    /// follower's own node with epochs that were never assigned.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F27_FalsePeerThatKnowsTheCluster_IsNotBelieved()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var before = await cluster.EpochAsync();
        var record = JsonParser.Default.Parse<ClusterRecord>(await cluster.Etcd.ControlAsync("get", "--print-value-only", "/kvcluster/local/cluster"));
        var shard = JsonParser.Default.Parse<ShardRecord>(await cluster.Etcd.ControlAsync("get", "--print-value-only", "/kvcluster/local/shards/0"));
        var receiver = shard.Replicas.Single(replica => replica.Node == 1).Replica;
        var senders = shard.Replicas.Where(replica => replica.Node != 1).ToArray();
        using var channel = GrpcChannel.ForAddress(cluster.PeerEndpoints[0]);
        await LieAsync(channel, record, 9, number => StrangeFrame(number, senders[number % 2].Replica, receiver, before + 1 + (ulong)(number % 3)));
        foreach (var sender in senders)
            await LieAsync(channel, record, sender.Node, number => StrangeFrame(number, sender.Replica, receiver, ulong.MaxValue - (ulong)(number % 3)));
        await histories.MoreChangesAsync(Some);
        Assert.InRange(await cluster.EpochAsync(), before, before + ElectionsMax);
        await shared.EndAsync();
    }

    /// <summary>
    /// The leader dies while etcd is unavailable, so nobody can succeed it. Ten thousand calls wait, and each ends by its deadline or with its
    /// answer.
    /// </summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task F23_TenThousandCallsWaitingForADeadLeader_AllEnd()
    {
        const int calls = 10_000;
        await using var cluster = await FaultCluster.StartAsync();
        var timeout = 2 * Eventually.Limit;
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = timeout });
        await client.PutAsync("k", "1");
        var leader = cluster.Node(await cluster.LeaderAsync());
        await cluster.Etcd.KillAsync(0);
        while (await cluster.LeadsNowAsync() != leader.Node)
        {
            // A stall of the machine has cost it its leadership before etcd was gone.
            cluster.Etcd.Start(0);
            leader = cluster.Node(await cluster.LeaderAsync());
            await cluster.Etcd.KillAsync(0);
        }
        await leader.KillAsync();
        var waiting = Enumerable.Range(0, calls).Select(_ => EndedAsync(client)).ToArray();
        Assert.DoesNotContain(waiting, static call => call.IsCompleted);
        cluster.Etcd.Start(0);
        await cluster.LeaderAsync(except: leader.Node);
        var ended = await Task.WhenAll(waiting).WaitAsync(timeout + Eventually.Limit);
        // They were answered when there was a leader again, long before their deadline.
        Assert.InRange(ended.Count(found => found), calls * 99 / 100, calls);
    }

    private static async Task<bool> EndedAsync(KvClient client)
    {
        try
        {
            return (await client.GetAsync("k")).Found;
        }
        catch (KvUnavailableException)
        {
            return false;
        }
    }

    private static V1.NodeLevels LevelsOf(ClusterRecord cluster) => new()
    {
        Format = new V1.LevelRange { Min = cluster.FormatLevel, Max = cluster.FormatLevel },
        Contract = new V1.LevelRange { Min = cluster.ContractLevel, Max = cluster.ContractLevel },
    };

    // Sends until the node has read everything and ended its side.
    private static async Task LieAsync(GrpcChannel channel, ClusterRecord cluster, uint node, Func<int, Frame> frame)
    {
        using var call = new Internal.V1.Replication.ReplicationClient(channel.Calls()).Connect();
        await call.RequestStream.WriteAsync(new PeerMessage
        {
            Hello = new PeerHello { ClusterId = cluster.ClusterId, Node = node, Levels = LevelsOf(cluster), Incarnation = 1, Lineage = cluster.Lineage }
        });
        Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
        await call.RequestStream.WriteAsync(new PeerMessage { Frames = { Enumerable.Range(0, 1000).Select(frame) } });
        await call.RequestStream.CompleteAsync();
        while (await call.ResponseStream.MoveNext(CancellationToken.None))
            continue;
    }

    private static Frame StrangeFrame(int number, ulong sender, ulong receiver, ulong epoch)
    {
        var frame = new Frame { Epoch = epoch, Sender = sender, SenderIncarnation = ulong.MaxValue, Receiver = receiver };
        switch (number % 5)
        {
            case 0:
                frame.Prepare = new Prepare();
                break;
            case 1:
                frame.Heartbeat = new Heartbeat();
                break;
            case 2:
                frame.Append = new Append();
                break;
            case 3:
                frame.Fenced = new Fenced();
                break;
            default:
                frame.SnapshotChunk = new SnapshotChunk();
                break;
        }

        return frame;
    }

    private static byte[] RandomBytes(int count)
    {
        var bytes = new byte[count];
        new Random(count).NextBytes(bytes);
        return bytes;
    }

    // Sends as much as it can before the other side closes.
    private static async Task SendRawAsync(int port, byte[] bytes)
    {
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        await socket.ConnectAsync(IPAddress.Loopback, port);
        try
        {
            await socket.SendAsync(bytes);
            socket.Shutdown(SocketShutdown.Send);
            var answer = new byte[4096];
            while (await socket.ReceiveAsync(answer).WaitAsync(Eventually.Limit) > 0)
                continue;
        }
        catch (SocketException)
        {
            // Refused in the middle, which is allowed as well.
        }
    }

    // A node ends what is false with its reason. On a busy machine the connection may end before that is read.
    private static Task UntilRefusedAsync(Internal.V1.Replication.ReplicationClient replication, StatusCode expected, PeerMessage message)
    {
        var refused = StatusCode.OK;
        return Eventually.TrueAsync(
            async () => (refused = await RefusalAsync(replication, message)) == expected, () => $"{expected} is the answer, and not {refused}");
    }

    private static async Task<StatusCode> RefusalAsync(Internal.V1.Replication.ReplicationClient replication, PeerMessage message)
    {
        using var call = replication.Connect(deadline: DateTime.UtcNow + Eventually.Limit);
        var refused = await Assert.ThrowsAsync<RpcException>(async () =>
        {
            await call.RequestStream.WriteAsync(message);
            while (await call.ResponseStream.MoveNext(CancellationToken.None))
                continue;
        });
        return refused.StatusCode;
    }
}
