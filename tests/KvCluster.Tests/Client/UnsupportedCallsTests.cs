using Google.Protobuf;
using Grpc.Core;
using Grpc.Core.Interceptors;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Client;

/// <summary>Calls to peers that do not know them and give no reason, as programs before that reason do.</summary>
public sealed class UnsupportedCallsTests
{
    [Fact]
    public async Task Call_ToAPeerThatGivesNoReason_HasOneWithItsAddress()
    {
        await using var server = await EchoServer.StartAsync();
        var calls = server.Channel.Intercept(new UnsupportedCalls("http://old:7401"));
        var info = await Refusal.ExpectAsync(
            async () => await new Absent.AbsentClient(calls).UnaryAsync(new EchoRequest()), StatusCode.Unimplemented, "UNSUPPORTED_BY_PEER", "http://old:7401");
        Assert.Equal("no", info.Metadata["applied"]);

        var bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);
        using var stream = calls.AsyncServerStreamingCall(
            new Method<byte[], byte[]>(MethodType.ServerStreaming, "later.Later", "Watch", bytes, bytes), null, new CallOptions(), []);
        await Refusal.ExpectAsync(
            () => stream.ResponseStream.MoveNext(CancellationToken.None), StatusCode.Unimplemented, "UNSUPPORTED_BY_PEER", "later.Later/Watch");

        var payload = ByteString.CopyFromUtf8("served");
        Assert.Equal(payload, (await new Echo.EchoClient(calls).UnaryAsync(new EchoRequest { Payload = payload })).Payload);
    }

    /// <summary>Its outcome counted as unknown.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task OperatorsChange_ThatThePeerDoesNotKnow_IsNotApplied(bool gateway)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].AdminScript = static () => throw new RpcException(new Status(StatusCode.Unimplemented, "Method is unimplemented."));
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Gateway = gateway, Timeout = Eventually.Limit });
        var failure = await Assert.ThrowsAsync<KvException>(() => client.Admin.DrainAsync(1));
        Assert.Equal(("UNSUPPORTED_BY_PEER", ChangeOutcome.NotApplied), (failure.Reason, failure.Outcome));
    }
}
