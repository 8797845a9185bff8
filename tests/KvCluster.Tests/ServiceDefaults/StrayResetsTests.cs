using System.Buffers;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.Tests.Grpc;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;
using Xunit.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>
/// gRPC's C core resets streams whose headers it has never sent, when a call is cancelled in time. Kestrel closed the connection with PROTOCOL_ERROR, and
/// with it the watches and calls of everybody on it.
/// </summary>
public sealed class StrayResetsTests(ITestOutputHelper output)
{
    private const byte Data = 0;
    private const byte Headers = 1;
    private const byte Reset = 3;
    private const byte Settings = 4;
    private const byte Ping = 6;
    private const byte GoAway = 7;

    private static ReadOnlySpan<byte> Preface => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"u8;

    [Fact]
    public async Task Read_OfFramesInAnyPieces_PassesAllButResetsOfStreamsThatWereNeverOpened()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 200; round++)
        {
            var (sent, expected) = MakeFrames(random);
            Assert.Equal(Convert.ToHexString(expected), Convert.ToHexString(await PassAsync(random, sent)));
        }
    }

    [Fact]
    public async Task Reset_OfAStreamThatWasNeverOpened_LeavesTheConnectionOpen()
    {
        var builder = ServerBuilder.Create(NullLoggerFactory.Instance, new Uri("http://127.0.0.1:0"));
        builder.Services.AddGrpc();
        builder.Services.AddSingleton<EchoService>();
        await using var app = builder.Build();
        app.MapGrpcService<EchoService>();
        await app.StartAsync();
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        await socket.ConnectAsync(IPAddress.Loopback, new Uri(app.Urls.Single()).Port);
        await socket.SendAsync((byte[])[.. Preface, .. Frame(Settings, 0, 0), .. Frame(Reset, 0, 7, 0, 0, 0, 8), .. Frame(Ping, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)]);
        await using var stream = new NetworkStream(socket);
        var header = new byte[9];
        while (true)
        {
            await stream.ReadExactlyAsync(header).AsTask().WaitAsync(Eventually.Limit);
            var payload = new byte[(header[0] << 16) | (header[1] << 8) | header[2]];
            await stream.ReadExactlyAsync(payload).AsTask().WaitAsync(Eventually.Limit);
            Assert.NotEqual(GoAway, header[3]);
            if (header[3] == Ping)
                break;
        }
    }

    private static (byte[] Sent, byte[] Expected) MakeFrames(Random random)
    {
        var (sent, expected, last) = (new List<byte>([.. Preface]), new List<byte>([.. Preface]), 0u);
        for (var left = random.Next(1, 60); left > 0; left--)
        {
            var isStray = random.Next(4) == 0;
            var opens = random.Next(2) == 0;
            var next = last == 0 ? 1 : last + 2;
            var stream = isStray ? next + (2 * (uint)random.Next(5)) : opens ? last = next : Math.Max(last, 1);
            byte[] frame = isStray ? Frame(Reset, 0, stream, 0, 0, 0, 8)
                : opens ? Frame(Headers, 4, stream, Payload(random))
                : last > 0 && random.Next(2) == 0 ? Frame(Reset, 0, stream, 0, 0, 0, 8)
                : Frame(Data, 0, stream, Payload(random));
            sent.AddRange(frame);
            if (!isStray)
                expected.AddRange(frame);
        }
        // A connection may end in the middle of a frame.
        if (random.Next(2) == 0)
        {
            byte[] part = Frame(Data, 0, 1, Payload(random))[..random.Next(9)];
            sent.AddRange(part);
            expected.AddRange(part);
        }
        return ([.. sent], [.. expected]);
    }

    private static async Task<byte[]> PassAsync(Random random, byte[] sent)
    {
        var pipe = new Pipe(new PipeOptions(minimumSegmentSize: 32, useSynchronizationContext: false));
        var reader = new StrayResets.Reader(pipe.Reader);
        var passed = new List<byte>();
        for (var at = 0; at < sent.Length;)
        {
            var piece = Math.Min(random.Next(1, random.Next(1, 80)), sent.Length - at);
            await pipe.Writer.WriteAsync(sent.AsMemory(at, piece));
            at += piece;
            if (at < sent.Length && random.Next(2) == 0 && reader.TryRead(out var some))
                Take(some);
        }
        await pipe.Writer.CompleteAsync();
        for (var isEnd = false; !isEnd;)
        {
            var read = await reader.ReadAsync().AsTask().WaitAsync(Eventually.Limit);
            isEnd = read.IsCompleted && Take(read);
            if (!read.IsCompleted)
                Take(read);
        }
        return [.. passed];

        // As Kestrel does, a part of what it is given. Returns whether that was everything.
        bool Take(in ReadResult read)
        {
            var part = read.Buffer.Slice(0, read.Buffer.IsEmpty ? 0 : random.NextInt64(1, read.Buffer.Length + 1));
            passed.AddRange(part.ToArray());
            reader.AdvanceTo(part.End);
            return part.Length == read.Buffer.Length;
        }
    }

    private static byte[] Payload(Random random)
    {
        var payload = new byte[random.Next(50)];
        random.NextBytes(payload);
        return payload;
    }

    private static byte[] Frame(byte kind, byte flags, uint stream, params byte[] payload) =>
    [
        0, (byte)(payload.Length >> 8), (byte)payload.Length, kind, flags,
        (byte)(stream >> 24), (byte)(stream >> 16), (byte)(stream >> 8), (byte)stream,
        .. payload,
    ];
}
