using Grpc.Core;
using KvCluster.Client.Telemetry;
using KvCluster.Client.Transport;
using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Routing;

/// <summary>
/// Keeps a <see cref="RouteTable"/> up to date from the map stream of one node or router at a time; when a stream breaks, the next address is
/// asked: the endpoints given first, then every node that the map names. So a dead leader costs no refresh by any request.
/// </summary>
internal sealed class MapWatch : IAsyncDisposable
{
    /// <summary>A client finds a cluster that comes back within about a second, and ten thousand clients do not all come at once.</summary>
    private static readonly TimeSpan PauseLeast = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan PauseGreatest = TimeSpan.FromSeconds(1);
    private readonly RouteTable _table;
    private readonly IReadOnlyList<string> _endpoints;
    private readonly INodeConnector _connector;
    private readonly ClientRuntime _runtime;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _disposed = new();
    private readonly Task _running;
    private volatile string _failure = "no endpoint has answered yet";

    public MapWatch(RouteTable table, IReadOnlyList<string> endpoints, INodeConnector connector, ClientRuntime runtime, ILogger log)
    {
        _table = table;
        _endpoints = endpoints;
        _connector = connector;
        _runtime = runtime;
        _log = log;
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
        var pause = PauseLeast;
        for (var attempt = 0; !_disposed.IsCancellationRequested; attempt++)
        {
            var addresses = _endpoints.Concat(_table.Nodes.Values).Distinct().ToArray();
            var told = await FollowAsync(addresses[attempt % addresses.Length]).ConfigureAwait(false);
            pause = told ? PauseLeast : pause;
            await Task.Delay(pause * (0.5 + (_runtime.Chance() / 2)), _runtime.Time, _disposed.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // All of them are asked once before it waits longer.
            if ((attempt + 1) % addresses.Length == 0)
                pause = pause * 2 < PauseGreatest ? pause * 2 : PauseGreatest;
        }
    }

    // True: it told something of the cluster.
    private async Task<bool> FollowAsync(string address)
    {
        var told = false;
        try
        {
            await foreach (var map in _connector.WatchMap(address, _disposed.Token).ConfigureAwait(false))
            {
                if (!_table.TryFold(map, out var foreign))
                {
                    _failure = $"{address} is left out: {foreign}";
                    ClientLog.ForeignCluster(_log, address, foreign);
                    return false;
                }
                told = true;
            }
            _failure = $"{address} ended the shard map's stream";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or IOException)
        {
            _failure = $"{address}: {(failure is RpcException rpc ? rpc.Status.Detail : failure.Message)}";
        }
        catch (Exception failure)
        {
            // A bug, or a map that nobody foresaw: without the loop the client would never hear of another leader.
            _failure = $"{address}: {failure.GetType().Name}: {failure.Message}";
            ClientMetrics.Unexpected("map");
            ClientLog.Unexpected(_log, "the shard map's stream", address, failure);
        }
        return told;
    }
}
