using System.Net;
using System.Net.Sockets;

namespace KvCluster.Tests.Node;

/// <summary>A loopback port in front of another one. A test can hold back its traffic: it then arrives late, but complete and in order.</summary>
internal sealed class HoldingProxy : IAsyncDisposable
{
    private readonly TcpListener _listener = new(IPAddress.Loopback, 0);
    private readonly CancellationTokenSource _disposed = new();
    private readonly int _target;
    private readonly Task _accepting;
    private volatile TaskCompletionSource _open = new();

    public HoldingProxy(int target)
    {
        _target = target;
        _open.SetResult();
        _listener.Start();
        Address = $"http://{_listener.LocalEndpoint}";
        _accepting = AcceptAsync();
    }

    public string Address { get; }

    /// <summary>Holds all traffic in both directions from now on, including new connections.</summary>
    public void Hold() => _open = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);

    public void Release() => _open.TrySetResult();

    public async ValueTask DisposeAsync()
    {
        await _disposed.CancelAsync();
        _listener.Stop();
        await _accepting;
        _disposed.Dispose();
    }

    private async Task AcceptAsync()
    {
        var pairs = new List<Task>();
        while (!_disposed.IsCancellationRequested)
        {
            try
            {
                pairs.Add(CarryAsync(await _listener.AcceptSocketAsync(_disposed.Token)));
            }
            catch (OperationCanceledException)
            {
                break;
            }
        }
        await Task.WhenAll(pairs);
    }

    private async Task CarryAsync(Socket caller)
    {
        using var near = caller;
        using var far = new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        near.NoDelay = true;
        try
        {
            await far.ConnectAsync(IPAddress.Loopback, _target, _disposed.Token);
            await await Task.WhenAny(PumpAsync(near, far), PumpAsync(far, near));
        }
        catch (Exception failure) when (failure is SocketException or OperationCanceledException or ObjectDisposedException)
        {
            // One side has closed, so the connection ends.
        }
    }

    private async Task PumpAsync(Socket from, Socket to)
    {
        var buffer = new byte[64 << 10];
        while (await from.ReceiveAsync(buffer, _disposed.Token) is var count and > 0)
        {
            await _open.Task.WaitAsync(_disposed.Token);
            for (var sent = 0; sent < count;)
                sent += await to.SendAsync(buffer.AsMemory(sent, count - sent), _disposed.Token);
        }
    }
}
