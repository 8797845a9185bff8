using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Client;

/// <summary>What failures of gRPC's client package mean to our callers.</summary>
public sealed class MappedFailuresTests
{
    [Theory]
    [InlineData("No grpc-status found on response.", StatusCode.Unknown)]
    [InlineData("Bad gRPC response. Invalid content-type value: text/html", StatusCode.Unknown)]
    [InlineData("Call canceled by the client.", StatusCode.Cancelled)]
    public void CancelledStatus_OfThePackage_IsACancellationOnlyIfSomebodyCancelled(string text, StatusCode expected) =>
        Assert.Equal(expected, MappedFailures.Map(new Status(StatusCode.Cancelled, text)).StatusCode);

    /// <summary>The package reports INTERNAL, as if the server had failed.</summary>
    [Fact]
    public void KeepAliveTimeout_IsALostConnection()
    {
        var cause = new HttpRequestException("", new HttpProtocolException(0, "The server did not answer a ping.", innerException: null));
        Assert.Equal(StatusCode.Unavailable, MappedFailures.Map(new Status(StatusCode.Internal, "", cause)).StatusCode);
    }

    [Fact]
    public void StatusOfTheServer_IsKept()
    {
        var status = new Status(StatusCode.Internal, "It failed.");
        Assert.Equal(status, MappedFailures.Map(status));
    }

    [Fact]
    public async Task Calls_OfADisposedChannel_EndAsCancelled()
    {
        var channel = GrpcChannel.ForAddress("http://127.0.0.1:1");
        var client = new Echo.EchoClient(channel.Calls());
        channel.Dispose();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(async () => await client.UnaryAsync(new EchoRequest()))).StatusCode);
        using var stream = client.ServerStream(new EchoRequest());
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => stream.ResponseStream.MoveNext(CancellationToken.None))).StatusCode);
        using var duplex = client.Duplex();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => duplex.RequestStream.WriteAsync(new EchoRequest()))).StatusCode);
    }

    [Fact]
    public async Task Write_AfterTheChannelWasDisposed_EndsAsCancelled()
    {
        await using var server = await EchoServer.StartAsync();
        var channel = GrpcChannel.ForAddress($"http://127.0.0.1:{server.Port}");
        using var duplex = new Echo.EchoClient(channel.Calls()).Duplex();
        await duplex.RequestStream.WriteAsync(new EchoRequest());
        Assert.True(await duplex.ResponseStream.MoveNext(CancellationToken.None));
        channel.Dispose();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => duplex.RequestStream.WriteAsync(new EchoRequest()))).StatusCode);
        await duplex.RequestStream.CompleteAsync();
    }
}
