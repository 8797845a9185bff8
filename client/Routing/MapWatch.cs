using Grpc.Core;
using KvCluster.Client.Transport;

namespace KvCluster.Client.Routing;

/// <summary>
/// Keeps a <see cref="RouteTable"/> up to date from the map stream of one node or router at a time; when a stream breaks, the next address is
/// asked: the endpoints given first, then every node that the map names. So a dead leader costs no refresh by any request.
/// </summary>
internal sealed class MapWatch : IAsyncDisposable
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(100);
    private readonly RouteTable _table;
    private readonly IReadOnlyList<string> _endpoints;
    private readonly INodeConnector _connector;
    private readonly TimeProvider _time;
    private readonly CancellationTokenSource _disposed = new();
    private readonly Task _running;
    private volatile string _failure = "no endpoint has answered yet";

    public MapWatch(RouteTable table, IReadOnlyList<string> endpoints, INodeConnector connector, TimeProvider time)
    {
        _table = table;
        _endpoints = endpoints;
        _connector = connector;
        _time = time;
        _running = RunAsync();
    }

    /// <summary>Why the last stream ended.</summary>
    public string Failure => _failure;

    public async ValueTask DisposeAsync()
    {
        await _disposed.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _disposed.Dispose();
    }

    private async Task RunAsync()
    {
        for (var attempt = 0; !_disposed.IsCancellationRequested; attempt++)
        {
            var addresses = _endpoints.Concat(_table.Nodes.Values).Distinct().ToArray();
            await FollowAsync(addresses[attempt % addresses.Length]).ConfigureAwait(false);
            await Task.Delay(Pause, _time, _disposed.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private async Task FollowAsync(string address)
    {
        try
        {
            await foreach (var map in _connector.WatchMap(address, _disposed.Token).ConfigureAwait(false))
                _table.Fold(map);
            _failure = $"{address} ended the shard map's stream";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or IOException)
        {
            _failure = $"{address}: {(failure is RpcException rpc ? rpc.Status.Detail : failure.Message)}";
        }
    }
}
