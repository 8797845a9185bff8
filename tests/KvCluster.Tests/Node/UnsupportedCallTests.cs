using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Node;

/// <summary>
/// Calls of a later version to a node or router of this one, as during an upgrade: they ended as UNIMPLEMENTED without a reason, or as the caller's mistake.
/// </summary>
public sealed class UnsupportedCallTests
{
    private static readonly Marshaller<byte[]> Bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Exchange_WithAMethodOfALaterVersion_RefusesThatCallOnly(bool isRouter)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var router = await RouterOfAsync(cluster);
        using var channel = GrpcChannel.ForAddress(isRouter ? router.Address : cluster.AddressOf(1));
        using var exchange = new Kv.KvClient(channel.Calls()).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        var key = ByteString.CopyFromUtf8("k");
        await exchange.RequestStream.WriteAsync(new ExchangeRequest
        {
            Calls =
            {
                new Call { Id = 1, Method = (Method)999, Request = new GetRequest { Key = key }.ToByteString(), TimeoutMs = 60_000 },
                new Call { Id = 2, Method = Method.Get, Request = new GetRequest { Key = key }.ToByteString(), TimeoutMs = 60_000 },
            },
        });
        var replies = new Dictionary<ulong, Reply>();
        while (replies.Count < 2 && await exchange.ResponseStream.MoveNext(CancellationToken.None))
        {
            foreach (var reply in exchange.ResponseStream.Current.Replies)
                replies.Add(reply.Id, reply);
        }
        Assert.Equal(0, replies[2].Code);
        Assert.Equal((int)StatusCode.Unimplemented, replies[1].Code);
        var status = Google.Rpc.Status.Parser.ParseFrom(replies[1].Status);
        AssertUnsupported(status.GetDetail<ErrorInfo>()!, isRouter ? null : "1");
        Assert.Contains("method 999", status.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("node")]
    [InlineData("node, for nodes")]
    [InlineData("router")]
    public async Task Call_ThatOnlyALaterVersionHas_IsRefusedWithNodeAndVersion(string peer)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var router = await RouterOfAsync(cluster);
        using var channel = GrpcChannel.ForAddress(peer == "router" ? router.Address : peer == "node" ? cluster.AddressOf(1) : cluster.PeerAddressOf(1));
        foreach (var (service, name) in ((string, string)[])[("kvcluster.v1.Kv", "Later"),
            ("kvcluster.later.v1.Later", "Call"), ("kvcluster.internal.v1.Placement", "Later")])
        {
            var refused = await Refusal.ExpectAsync(
                () => CallAsync(channel, service, name), StatusCode.Unimplemented, "UNSUPPORTED_BY_PEER", $"{service}/{name}");
            AssertUnsupported(refused, peer == "router" ? null : "1");
        }
    }

    /// <summary>An operator whose router has no operators' calls was told that the outcome of the change is unknown.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task OperatorsCall_WhereTheyAreNotServed_SaysWhereTheyAre(bool isRouter)
    {
        await using var cluster = await NodeCluster.StartWithoutAdminAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var router = await RouterOfAsync(cluster);
        await using var client = new KvCluster.Client.KvClient(new KvCluster.Client.KvClientOptions { Endpoints =
        [
            isRouter ? router.Address : cluster.AddressOf(1)
        ], Gateway = true, Timeout = Eventually.Limit });
        var failure = await Assert.ThrowsAsync<KvCluster.Client.KvException>(() => client.Admin.PlaceAsync(paused: true));
        Assert.Equal(("NOT_SERVED_HERE", KvCluster.Client.ChangeOutcome.NotApplied), (failure.Reason, failure.Outcome));
        Assert.Contains("serve-admin", failure.Message, StringComparison.Ordinal);
    }

    /// <summary>It was said to be a node of an older version.</summary>
    [Theory]
    [InlineData("/kvcluster.admin.v1.Admin/Examine", "NOT_SERVED_HERE", true)]
    [InlineData("/kvcluster.later.v1.Later/Call", "UNSUPPORTED_BY_PEER", false)]
    public void Refusal_ByANodeThatWaits_SaysSoOfCallsThatItKnows(string path, string reason, bool says)
    {
        var status = UnservedCalls.RefusalOfWaiting(new(3), "store", path);
        Assert.Equal(((int)StatusCode.Unimplemented, reason), (status.Code, status.GetDetail<ErrorInfo>()!.Reason));
        Assert.Equal(says, WaitingNode.IsIn(status.Message));
        Assert.Contains(path[1..], status.Message, StringComparison.Ordinal);
    }

    /// <summary>The path comes from the caller, and the message of a status is short.</summary>
    [Fact]
    public void Refusal_OfALongPath_ShowsItsBeginning()
    {
        var status = UnservedCalls.Refusal(new(3), $"/{new string('x', 5_000)}/\n");
        Assert.InRange(status.Message.Length, 200, 500);
        Assert.Equal("3", status.GetDetail<ErrorInfo>()!.Metadata["node"]);
    }

    private static void AssertUnsupported(ErrorInfo info, string? node)
    {
        Assert.Equal(("UNSUPPORTED_BY_PEER", "no", ProgramVersion.Full), (info.Reason, info.Metadata["applied"], info.Metadata["version"]));
        Assert.Equal(node, info.Metadata.TryGetValue("node", out var named) ? named : null);
    }

    private static async Task CallAsync(GrpcChannel channel, string service, string name) => await channel.CreateCallInvoker().AsyncUnaryCall(
        new Method<byte[], byte[]>(MethodType.Unary, service, name, Bytes, Bytes), null, new CallOptions(deadline: DateTime.UtcNow + Eventually.Limit), []);

    private static Task<RouterHost> RouterOfAsync(NodeCluster cluster) => RouterHost.StartAsync(
        new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit },
        new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
}
