using System.Net;
using System.Net.Sockets;

namespace KvCluster.Processes;

/// <summary>
/// A port in front of another one on loopback, which passes what the <see cref="Network"/> allows. One loop accepts, and two per connection copy
/// data.
/// </summary>
internal sealed class Relay : IAsyncDisposable
{
    private readonly Network _network;
    private readonly int _to;
    private readonly int? _from;
    private readonly int _targetPort;
    private readonly IPAddress? _address;
    private readonly TcpListener _listener = new(IPAddress.Loopback, 0);
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _accepting;

    // Connections are numbered; those before this number are dropped.
    private int _accepted;
    private int _droppedBefore;

    /// <param name="to">The side that it leads to.</param>
    /// <param name="from">The side that uses it, or null to find out by each connection's owner.</param>
    /// <param name="address">The address that its connections come from, for a server that counts them by address; null leaves it to the system.</param>
    public Relay(Network network, int to, int targetPort, int? from = null, IPAddress? address = null)
    {
        (_network, _to, _from, _targetPort, _address) = (network, to, from, targetPort, address);
        _listener.Start();
        Port = ((IPEndPoint)_listener.LocalEndpoint).Port;
        _accepting = Task.Run(AcceptAsync);
    }

    public int Port { get; }

    /// <summary>
    /// From now on the connections that are open pass nothing, and are not closed, as if a firewall on the way had forgotten them. New ones are not affected.
    /// </summary>
    public void DropOpen() => Volatile.Write(ref _droppedBefore, Volatile.Read(ref _accepted));

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync();
        await _accepting;
        _listener.Dispose();
        _stopping.Dispose();
    }

    private async Task AcceptAsync()
    {
        var carried = new List<Task>();
        while (!_stopping.IsCancellationRequested)
        {
            try
            {
                var incoming = await _listener.AcceptSocketAsync(_stopping.Token);
                carried.RemoveAll(task => task.IsCompleted);
                carried.Add(CarryAsync(incoming, _accepted++));
            }
            catch (OperationCanceledException)
            {
                break;
            }
        }

        await Task.WhenAll(carried);
    }

    private async Task CarryAsync(Socket incoming, int number)
    {
        using var outgoing = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        using var ending = CancellationTokenSource.CreateLinkedTokenSource(_stopping.Token);
        using (incoming)
        {
            try
            {
                incoming.NoDelay = outgoing.NoDelay = true;
                var from = _from ?? _network.SourceOf(((IPEndPoint)incoming.RemoteEndPoint!).Port, Port);
                await _network.PassAsync(from, _to, ending.Token);
                if (_address is not null)
                    outgoing.Bind(new IPEndPoint(_address, 0));
                await outgoing.ConnectAsync(IPAddress.Loopback, _targetPort, ending.Token);
                var ways = new[]
                {
                    CopyAsync(incoming, outgoing, number, from, _to, DataFrames.ClientPreface, ending.Token),
                    CopyAsync(outgoing, incoming, number, _to, from, preface: 0, ending.Token)
                };
                // One end is closed, so the connection ends, as far as the uncut directions show it.
                await await Task.WhenAny(ways);
                await ending.CancelAsync();
                await Task.WhenAll(ways);
            }
            catch (Exception failure) when (failure is SocketException or OperationCanceledException)
            {
                // An end was reset, or the relay stops. Both sockets are closed, so the other end sees it.
                await ending.CancelAsync();
            }
        }
    }

    private async Task CopyAsync(Socket source, Socket target, int number, int from, int to, int preface, CancellationToken cancellationToken)
    {
        var frames = from > Network.Clients && to > Network.Clients ? new DataFrames(preface) : null;
        var buffer = new byte[64 << 10];
        while (await source.ReceiveAsync(buffer, cancellationToken) is > 0 and var bytes)
        {
            await _network.PassAsync(from, to, cancellationToken);
            if (number < Volatile.Read(ref _droppedBefore))
                await Task.Delay(Timeout.Infinite, cancellationToken);
            if (frames is not null)
                _network.CountFrames(frames.Take(buffer.AsSpan(0, bytes)));
            _network.Hear(from, to, buffer.AsSpan(0, bytes));
            for (var sent = 0; sent < bytes;)
                sent += await target.SendAsync(buffer.AsMemory(sent, bytes - sent), cancellationToken);
        }
    }
}
