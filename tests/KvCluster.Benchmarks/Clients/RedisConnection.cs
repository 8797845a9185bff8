using System.Buffers;
using System.Globalization;
using System.Net.Sockets;
using System.Text;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// A connection to a Redis server that many callers share, as in the clients that .NET programs use: what comes while bytes are being sent goes out together,
/// and answers come in the order of the commands. Any thread. When it has failed, every call gets its failure.
/// </summary>
internal sealed class RedisConnection : IAsyncDisposable
{
    private const int BufferBytes = 1 << 16;

    private readonly Lock _gate = new();
    private readonly Socket _socket = new(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
    private readonly Queue<TaskCompletionSource<RedisReply>> _unanswered = new();
    private ArrayBufferWriter<byte> _filling = new(BufferBytes);
    private ArrayBufferWriter<byte> _sending = new(BufferBytes);
    private Task _receiving = Task.CompletedTask;
    private Exception? _failure;
    private bool _isSending;

    private RedisConnection()
    {
    }

    /// <summary>Connects to a server on loopback.</summary>
    public static async Task<RedisConnection> OpenAsync(int port, CancellationToken cancellation)
    {
        var connection = new RedisConnection();
        await connection._socket.ConnectAsync("127.0.0.1", port, cancellation);
        connection._receiving = Task.Run(connection.ReceiveAsync, CancellationToken.None);
        return connection;
    }

    /// <summary>Sends a command.</summary>
    /// <param name="command">Its name and its arguments. They may be used again at once.</param>
    /// <exception cref="InvalidOperationException">The server has refused it.</exception>
    public Task<RedisReply> CallAsync(params ReadOnlyMemory<byte>[] command)
    {
        var answer = new TaskCompletionSource<RedisReply>(TaskCreationOptions.RunContinuationsAsynchronously);
        lock (_gate)
        {
            if (_failure is not null)
                return Task.FromException<RedisReply>(_failure);
            Append(_filling, command);
            _unanswered.Enqueue(answer);
            if (_isSending)
                return answer.Task;
            _isSending = true;
        }
        // Not here, so that callers that are running meanwhile add theirs. It handles its failures.
        _ = Task.Run(SendAsync);
        return answer.Task;
    }

    public async ValueTask DisposeAsync()
    {
        _socket.Dispose();
        await _receiving;
    }

    private static void Append(ArrayBufferWriter<byte> target, ReadOnlyMemory<byte>[] command)
    {
        AppendLine(target, '*', command.Length);
        foreach (var part in command)
        {
            AppendLine(target, '$', part.Length);
            target.Write(part.Span);
            target.Write("\r\n"u8);
        }
    }

    private static void AppendLine(ArrayBufferWriter<byte> target, char kind, int number) =>
        Encoding.ASCII.GetBytes(string.Create(CultureInfo.InvariantCulture, $"{kind}{number}\r\n"), target);

    private async Task SendAsync()
    {
        try
        {
            while (TakeFilled() is { } filled)
            {
                for (var sent = 0; sent < filled.WrittenCount;)
                    sent += await _socket.SendAsync(filled.WrittenMemory[sent..], SocketFlags.None);
                filled.ResetWrittenCount();
            }
        }
        catch (Exception failure) when (failure is SocketException or ObjectDisposedException)
        {
            Fail(failure);
        }
    }

    private ArrayBufferWriter<byte>? TakeFilled()
    {
        lock (_gate)
        {
            if (_filling.WrittenCount == 0)
            {
                _isSending = false;
                return null;
            }
            (_filling, _sending) = (_sending, _filling);
            return _sending;
        }
    }

    private async Task ReceiveAsync()
    {
        var (buffer, received) = (new byte[BufferBytes], 0);
        try
        {
            while (await _socket.ReceiveAsync(buffer.AsMemory(received), SocketFlags.None) is > 0 and var count)
            {
                received += count;
                var taken = Answer(buffer.AsSpan(0, received));
                buffer.AsSpan(taken, received - taken).CopyTo(buffer);
                received -= taken;
                if (received == buffer.Length)
                    Array.Resize(ref buffer, 2 * buffer.Length);
            }
            Fail(new IOException("The Redis server has closed the connection."));
        }
        catch (Exception failure) when (failure is SocketException or ObjectDisposedException or InvalidDataException)
        {
            Fail(failure);
        }
    }

    // Hands out the whole answers that the bytes begin with, and returns how many bytes they have.
    private int Answer(ReadOnlySpan<byte> bytes)
    {
        var taken = 0;
        while (RedisReply.TryRead(bytes[taken..], out var reply, out var length))
        {
            taken += length;
            TaskCompletionSource<RedisReply> answer;
            lock (_gate)
                answer = _unanswered.Dequeue();
            if (reply.Error is { } error)
                answer.TrySetException(new InvalidOperationException($"The Redis server has refused a command: {error}"));
            else
                answer.TrySetResult(reply);
        }
        return taken;
    }

    private void Fail(Exception failure)
    {
        TaskCompletionSource<RedisReply>[] unanswered;
        lock (_gate)
        {
            _failure ??= failure;
            unanswered = [.. _unanswered];
            _unanswered.Clear();
        }
        foreach (var answer in unanswered)
            answer.TrySetException(failure);
    }
}
