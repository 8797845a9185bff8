using System.Collections.Concurrent;
using System.Net;
using System.Net.Sockets;
using Grpc.Net.Client;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>A port with as many connections as it accepts, and more.</summary>
public sealed class ConnectionLimitTests
{
    private const int Limit = 8;

    [Fact]
    [Trait("Turn", "4")]
    public Task Connect_BeyondTheDefaultLimit_ClosesUnusedConnections() =>
        Connect_BeyondTheLimit_ClosesUnusedConnections(ListenerLimits.ConnectionsDefault, 10_000);

    /// <summary>A caller that opened many connections and sent nothing kept all others out, or there was no limit at all.</summary>
    [Theory]
    [InlineData(Limit, 3 * Limit)]
    public async Task Connect_BeyondTheLimit_ClosesUnusedConnections(int limit, int unused)
    {
        var builder = ServerBuilder.Create(NullLoggerFactory.Instance, new Uri("http://127.0.0.1:0"), limits: ListenerLimits.OfClients(limit));
        builder.Services.AddGrpc();
        builder.Services.AddSingleton<EchoService>();
        await using var app = builder.Build();
        app.MapGrpcService<EchoService>();
        await app.StartAsync();
        var address = new Uri(app.Urls.Single());
        using var channel = GrpcChannel.ForAddress(address);
        var used = new Echo.EchoClient(channel.Calls());
        await used.UnaryAsync(new EchoRequest());
        var idle = new List<Socket>();
        for (var number = 0; number < unused; number++)
        {
            var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
            await socket.ConnectAsync(IPAddress.Loopback, address.Port);
            idle.Add(socket);
        }
        // All but those that still have a place beside the one in use are closed; which these are, depends on the order in which the server takes the
        // connections.
        var closed = unused - ((limit * 3 / 4) - 1);
        var ends = idle.ConvertAll(EndsAsync);
        await Eventually.TrueAsync(() => ends.Count(end => end.IsCompleted) >= closed, "unused connections are closed");
        Assert.Equal(closed, ends.Count(end => end.IsCompletedSuccessfully && end.Result));
        await used.UnaryAsync(new EchoRequest());
        using var another = GrpcChannel.ForAddress(address);
        await new Echo.EchoClient(another.Calls()).UnaryAsync(new EchoRequest());
        foreach (var socket in idle)
            socket.Dispose();
    }

    /// <summary>
    /// One host with a call on each of its connections took all places. Every new connection from anywhere was reset, and the log did not mention it.
    /// </summary>
    [Fact]
    public async Task Connect_FromOneAddress_IsLimitedToThreeQuartersAndRefusalsAreLoggedOnceAMinute()
    {
        var (log, time) = (new LinesLog(), new ManualTime());
        await using var server = await EchoServer.StartAsync(listen: listen => new ConnectionLimit(Limit, log, time).Guard(listen));
        var address = $"http://127.0.0.1:{server.Port}";
        var channels = new List<GrpcChannel>();
        for (var number = 0; number < Limit * 3 / 4; number++)
        {
            channels.Add(GrpcChannel.ForAddress(address));
            await new Echo.EchoClient(channels[^1].Calls()).UnaryAsync(new EchoRequest());
        }
        for (var number = 0; number < 3; number++)
            Assert.True(await IsRefusedAsync(server.Port));
        Assert.Contains("127.0.0.1. 6 connections from there are open", Assert.Single(log.Lines), StringComparison.Ordinal);

        // Another host gets the remaining places, and all its calls are served.
        using var handler = new SocketsHttpHandler
        {
            ConnectCallback = async (_, _) => new NetworkStream(await ConnectAsync(IPAddress.Parse("127.0.0.2"), server.Port), ownsSocket: true),
        };
        using var other = GrpcChannel.ForAddress(address, new GrpcChannelOptions { HttpHandler = handler });
        await new Echo.EchoClient(other.Calls()).UnaryAsync(new EchoRequest());
        time.Advance(TimeSpan.FromMinutes(1));
        Assert.True(await IsRefusedAsync(server.Port));
        Assert.Contains("Refused 3 connections", log.Lines[^1], StringComparison.Ordinal);
        Assert.Equal(2, log.Lines.Length);

        // A released place is given out again.
        channels[0].Dispose();
        using var again = GrpcChannel.ForAddress(address);
        await Eventually.TrueAsync(() => IsServedAsync(new Echo.EchoClient(again.Calls())), "the place is free");
        foreach (var channel in channels)
            channel.Dispose();
    }

    /// <summary>A machine with an IPv6 network used a different address for each connection and took all places.</summary>
    [Theory]
    [InlineData("2001:db8:0:7::1", "2001:db8:0:7:ffff::2", true)]
    [InlineData("2001:db8:0:7::1", "2001:db8:0:8::1", false)]
    [InlineData("fe80::1%2", "fe80::2%3", false)]
    [InlineData("192.0.2.1", "::ffff:192.0.2.1", true)]
    [InlineData("192.0.2.1", "192.0.2.2", false)]
    [InlineData("::ffff:192.0.2.1", "::ffff:192.0.2.2", false)]
    public async Task Connect_FromAddressesOfOneNetwork_CountsAsFromOneHost(string first, string second, bool isOneHost)
    {
        var (log, remote) = (new LinesLog(), IPAddress.Parse(first));
        await using var server = await EchoServer.StartAsync(listen: listen =>
        {
            listen.Use(next => connection =>
            {
                connection.RemoteEndPoint = new IPEndPoint(Volatile.Read(ref remote), 1);
                return next(connection);
            });
            new ConnectionLimit(Limit, log, TimeProvider.System).Guard(listen);
        });
        var channels = new List<GrpcChannel>();
        for (var number = 0; number < Limit * 3 / 4; number++)
        {
            channels.Add(GrpcChannel.ForAddress($"http://127.0.0.1:{server.Port}"));
            await new Echo.EchoClient(channels[^1].Calls()).UnaryAsync(new EchoRequest());
        }
        Volatile.Write(ref remote, IPAddress.Parse(second));
        if (isOneHost)
        {
            Assert.True(await IsRefusedAsync(server.Port));
            Assert.Contains(
                first.Contains(':') ? "from 2001:db8:0:7::/64. 6 connections from there" : "from 192.0.2.1. 6 connections from there", Assert.Single(log.Lines),
                StringComparison.Ordinal);
        }
        else
        {
            await server.Client.UnaryAsync(new EchoRequest());
        }
        foreach (var channel in channels)
            channel.Dispose();
    }

    /// <summary>
    /// Kestrel's tasks of connections on which many calls were reset sometimes never end. Each kept its place until a restart: after eighty minutes of a caller
    /// with short deadlines its host was refused.
    /// </summary>
    [Fact]
    public async Task Close_OfConnectionsWhoseTasksNeverEnd_FreesTheirPlacesAndKeepsNothing()
    {
        var (log, left, kept) = (new LinesLog(), new LeftTasks(), new ConcurrentQueue<TaskCompletionSource>());
        var server = await EchoServer.StartAsync(listen: listen =>
        {
            new ConnectionLimit(Limit, log, new HastyTime(), left).Guard(listen);
            listen.Use(next => async connection =>
            {
                await next(connection);
                var never = new TaskCompletionSource();
                kept.Enqueue(never);
                await never.Task;
            });
        });
        for (var number = 0; number < 5 * Limit; number++)
        {
            using var channel = GrpcChannel.ForAddress($"http://127.0.0.1:{server.Port}");
            var calls = new Echo.EchoClient(channel.Calls());
            await Eventually.TrueAsync(async () => await IsServedAsync(calls), "a place is free");
        }
        await Eventually.TrueAsync(() => left.Count >= 5 * Limit, "all of them are left");
        kept.Clear();
        // Nothing keeps them, so they go with the next collection.
        await Eventually.TrueAsync(
            () =>
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
                return left.Count == 0;
            },
            "what is left of the connections is collected");
        // The server stops without waiting for them.
        await server.DisposeAsync().AsTask().WaitAsync(Eventually.Limit);
    }

    private static async Task<bool> IsServedAsync(Echo.EchoClient calls)
    {
        try
        {
            await calls.UnaryAsync(new EchoRequest());
            return true;
        }
        catch (global::Grpc.Core.RpcException failure) when (failure.StatusCode == global::Grpc.Core.StatusCode.Unavailable)
        {
            return false;
        }
    }

    // The reset may arrive before the connection counts as established.
    private static async Task<bool> IsRefusedAsync(int port)
    {
        try
        {
            using var socket = await ConnectAsync(IPAddress.Loopback, port);
            return await EndsAsync(socket);
        }
        catch (SocketException failure) when (failure.SocketErrorCode == SocketError.ConnectionReset)
        {
            return true;
        }
    }

    private static async Task<Socket> ConnectAsync(IPAddress from, int port)
    {
        var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Bind(new IPEndPoint(from, 0));
        await socket.ConnectAsync(IPAddress.Loopback, port);
        return socket;
    }

    private static async Task<bool> EndsAsync(Socket socket)
    {
        try
        {
            return await socket.ReceiveAsync(new byte[1]).WaitAsync(Eventually.Limit) == 0;
        }
        catch (SocketException failure) when (failure.SocketErrorCode == SocketError.ConnectionReset)
        {
            return true;
        }
    }

    /// <summary>The machine's time, with waits a hundred times as short.</summary>
    private sealed class HastyTime : TimeProvider
    {
        public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period) =>
            base.CreateTimer(callback, state, dueTime == Timeout.InfiniteTimeSpan ? dueTime : dueTime / 100, period);
    }
}
