using Grpc.Core;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.Tests.Grpc.Proto;
using Microsoft.AspNetCore.Builder;

namespace KvCluster.Tests.Grpc;

/// <summary>The rules that a host adds to its gRPC server, seen from outside.</summary>
public sealed class CallRulesTests
{
    private static readonly Marshaller<byte[]> Bytes = new(static bytes => bytes, static bytes => bytes);

    [Theory]
    [InlineData("Unary")]
    [InlineData("Duplex")]
    public async Task Request_ThatIsNoMessage_IsTheCallersMistake(string name)
    {
        await using var server = await EchoServer.StartAsync(configureServices: static services => services.AddUnreadableRequests());
        var calls = server.Channel.CreateCallInvoker();
        var failure = await Assert.ThrowsAsync<RpcException>(async () =>
        {
            if (name == "Unary")
            {
                await calls.AsyncUnaryCall(MethodOf(MethodType.Unary, name), null, default, [0xff, 0xff]);
                return;
            }
            using var call = calls.AsyncDuplexStreamingCall(MethodOf(MethodType.DuplexStreaming, name), null, default);
            await call.RequestStream.WriteAsync([0xff, 0xff]);
            await call.ResponseStream.MoveNext(CancellationToken.None);
        });
        Assert.Equal((StatusCode.InvalidArgument, "BAD_REQUEST"), (failure.StatusCode, failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason));
    }

    /// <summary>The exception is the same as for a request that is no message. Its caller was told to send another one.</summary>
    [Fact]
    public async Task Handler_ThatFailsToParse_IsNotTheCallersMistake()
    {
        await using var server = await EchoServer.StartAsync(
            configureServices: static services => services.AddUnreadableRequests(), map: static app => app.MapGrpcService<ParsingService>());
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await new Absent.AbsentClient(server.Channel.Calls()).UnaryAsync(new EchoRequest()));
        Assert.Equal(StatusCode.Unknown, failure.StatusCode);
    }

    [Fact]
    public async Task CallForAnotherCluster_IsRefused()
    {
        var here = new ForeignCalls(static () => "here");
        await using var server = await EchoServer.StartAsync(configureServices: services => services.AddForeignCalls(here));
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await server.Client.UnaryAsync(new EchoRequest(), ClusterHeader.For("there")));
        Assert.True(ClusterHeader.IsForeign(failure));
        await server.Client.UnaryAsync(new EchoRequest(), ClusterHeader.For("here"));
        await server.Client.UnaryAsync(new EchoRequest());
    }

    [Fact]
    public async Task CallOfAnUnknownService_HasTheHostsReason()
    {
        await using var server = await EchoServer.StartAsync(configureServices: static services => services.AddUnservedCalls(NodeId.None));
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await new Absent.AbsentClient(server.Channel.Calls()).UnaryAsync(new EchoRequest()));
        Assert.Equal(StatusCode.Unimplemented, failure.StatusCode);
        Assert.Equal(UnsupportedCall.Reason, failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason);
    }

    [Fact]
    public async Task Service_ThatIsNotRegistered_HasOneInstance()
    {
        await using var server = await EchoServer.StartAsync(map: static app => app.MapGrpcService<UnregisteredService>());
        var client = new Absent.AbsentClient(server.Channel.Calls());
        var first = await client.UnaryAsync(new EchoRequest());
        Assert.Equal(first, await client.UnaryAsync(new EchoRequest()));
    }

    private static Method<byte[], byte[]> MethodOf(MethodType type, string name) => new(type, "kvcluster.testing.Echo", name, Bytes, Bytes);

    /// <summary>Answers with what tells its instance from others.</summary>
    private sealed class UnregisteredService : Absent.AbsentBase
    {
        private readonly EchoReply _reply = new() { Payload = Google.Protobuf.ByteString.CopyFrom(Guid.NewGuid().ToByteArray()) };

        public override Task<EchoReply> Unary(EchoRequest request, ServerCallContext context) => Task.FromResult(_reply);
    }

    /// <summary>Parses something else than its request.</summary>
    private sealed class ParsingService : Absent.AbsentBase
    {
        public override Task<EchoReply> Unary(EchoRequest request, ServerCallContext context) =>
            Task.FromResult(EchoReply.Parser.ParseFrom((byte[])[0xff, 0xff]));
    }
}
