using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.Grpc.Wire;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>What a port for clients accepts from a caller before any handler sees it.</summary>
public sealed class ListenerLimitsTests
{
    /// <summary>
    /// An open call held 27 KB of headers, which a caller that has sent them once names with a few bytes. 300 connections with 100 calls took another
    /// gigabyte of a node.
    /// </summary>
    [Fact]
    public async Task Headers_WithATokenAndATrace_AreAcceptedAndMoreThan8KiBAreNot()
    {
        await using var app = await StartAsync();
        using var channel = GrpcChannel.ForAddress(app.Urls.Single());
        var client = new Echo.EchoClient(channel.Calls());
        var headers = new Metadata
        {
            { "authorization", "Bearer " + new string('t', 4 << 10) },
            { "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
            { "tracestate", new string('s', 512) },
            { "grpc-trace-bin", new byte[29] },
        };
        await client.UnaryAsync(new EchoRequest(), headers);
        headers.Add("another", new string('t', 4 << 10));
        await Assert.ThrowsAsync<RpcException>(async () => await client.UnaryAsync(new EchoRequest(), headers));
        // The connection ends with the refused call; the next call opens another.
        await client.UnaryAsync(new EchoRequest());
    }

    /// <summary>A caller may have 1,024 calls open on a connection. Each further stream costs memory before its call can be refused.</summary>
    [Fact]
    public async Task Settings_OfAConnection_Allow1024Streams()
    {
        await using var app = await StartAsync();
        using var channel = GrpcChannel.ForAddress(app.Urls.Single());
        var client = new Echo.EchoClient(channel.Calls());
        await Task.WhenAll(Enumerable.Range(0, 2_400).Select(_ => client.UnaryAsync(new EchoRequest()).ResponseAsync));
        using var connection = await Http2Connection.ConnectAsync(new Uri(app.Urls.Single()).Port);
        await connection.WriteAsync([.. Enumerable.Range(0, 1_025).SelectMany(number => Request((2 * number) + 1).ToBytes())]);
        Http2Frame? frame;
        do
        {
            frame = await connection.ReadAsync();
        }
        while (frame is { Type: not Http2Frame.Reset });
        // The stream beyond the limit is refused with REFUSED_STREAM, so its caller may send the call again.
        Assert.Equal((2_049, 7), (frame!.Stream, frame.Payload[3]));
    }

    /// <summary>
    /// While the thread pool was busy, probes, operators and nodes waited in one queue with thousands of clients for up to a minute. A live node
    /// looked dead.
    /// </summary>
    [Fact]
    public void Connections_OfClientsAlone_WaitToBeRead()
    {
        Assert.True(ListenerLimits.OfClients(1).IsGated);
        Assert.All([ListenerLimits.OfPeers(1), ListenerLimits.OfAdmin(), ListenerLimits.OfCoordinator()], limits => Assert.False(limits.IsGated));
    }

    private static Http2Frame Request(int stream) => new(
        Http2Frame.Headers,
        Http2Frame.EndHeaders,
        stream,
        Http2Frame.HeaderBlock(
            (":method", "POST"), (":scheme", "http"), (":path", "/kvcluster.testing.Echo/Duplex"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc")));

    private static async Task<WebApplication> StartAsync()
    {
        var builder = ServerBuilder.Create(
            NullLoggerFactory.Instance, new Uri("http://127.0.0.1:0"), limits: ListenerLimits.OfClients(ListenerLimits.ConnectionsDefault));
        builder.Services.AddGrpc();
        builder.Services.AddSingleton<EchoService>();
        var app = builder.Build();
        app.MapGrpcService<EchoService>();
        await app.StartAsync();
        return app;
    }
}
