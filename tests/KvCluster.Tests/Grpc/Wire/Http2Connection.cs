using System.Buffers.Binary;
using System.Net;
using System.Net.Sockets;

namespace KvCluster.Tests.Grpc.Wire;

/// <summary>HTTP/2 frames over TCP, written and read unchanged. Answers settings and pings and does nothing else.</summary>
internal sealed class Http2Connection(TcpClient tcp) : IDisposable
{
    private readonly NetworkStream _stream = tcp.GetStream();

    /// <summary>Connects to a server and sends the client preface.</summary>
    public static async Task<Http2Connection> ConnectAsync(int port)
    {
        var tcp = new TcpClient();
        await tcp.ConnectAsync(IPAddress.Loopback, port);
        var connection = new Http2Connection(tcp);
        await connection.WriteAsync(Http2Frame.Preface);
        await connection.WriteAsync(new Http2Frame(Http2Frame.Settings, Http2Frame.None, 0, []));
        return connection;
    }

    /// <summary>Accepts a connection and reads the client preface.</summary>
    public static async Task<Http2Connection> AcceptAsync(TcpClient tcp)
    {
        var connection = new Http2Connection(tcp);
        await connection._stream.ReadExactlyAsync(new byte[Http2Frame.Preface.Length]);
        await connection.WriteAsync(new Http2Frame(Http2Frame.Settings, Http2Frame.None, 0, []));
        return connection;
    }

    public void Dispose() => tcp.Dispose();

    public Task WriteAsync(byte[] bytes) => _stream.WriteAsync(bytes).AsTask();

    public Task WriteAsync(Http2Frame frame) => WriteAsync(frame.ToBytes());

    /// <summary>The next frame that is not settings or a ping, or null when the peer closed or broke the connection.</summary>
    public async Task<Http2Frame?> ReadAsync()
    {
        try
        {
            while (true)
            {
                var header = new byte[9];
                await _stream.ReadExactlyAsync(header);
                var payload = new byte[(header[0] << 16) | BinaryPrimitives.ReadUInt16BigEndian(header.AsSpan(1))];
                await _stream.ReadExactlyAsync(payload);
                var frame = new Http2Frame(header[3], header[4], BinaryPrimitives.ReadInt32BigEndian(header.AsSpan(5)), payload);
                if (frame.Type is not (Http2Frame.Settings or Http2Frame.Ping))
                    return frame;
                if ((frame.Flags & Http2Frame.Ack) == 0)
                    await WriteAsync(frame with { Flags = Http2Frame.Ack, Payload = frame.Type == Http2Frame.Ping ? payload : [] });
            }
        }
        catch (IOException)
        {
            return null;
        }
    }
}
