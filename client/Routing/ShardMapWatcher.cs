using Grpc.Core;
using KvCluster.Client.Runtime;
using KvCluster.Client.Telemetry;
using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Routing;

/// <summary>
/// Keeps a <see cref="RouteTable"/> up to date from the map stream of one node or router at a time; when a stream breaks, the next address is
/// asked: the endpoints given first, then every node that the map names. So a dead leader costs no refresh by any request. An address that does not answer soon
/// has the next ones asked beside it; the first that tells something is the one that is followed.
/// </summary>
internal sealed class ShardMapWatcher : IAsyncDisposable
{
    /// <summary>A client finds a cluster that comes back within about a second, and ten thousand clients do not all come at once.</summary>
    private static readonly TimeSpan PauseLeast = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan PauseGreatest = TimeSpan.FromSeconds(1);

    /// <summary>As with calls to a node that is slow to connect to; a map comes with the first answer.</summary>
    private static readonly TimeSpan Slow = TimeSpan.FromMilliseconds(250);

    private readonly RouteTable _table;
    private readonly IReadOnlyList<string> _endpoints;
    private readonly IShardMapSource _source;
    private readonly ClientRuntime _runtime;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _disposed = new();
    private readonly Task _running;
    private volatile string _failure = "no endpoint has answered yet";

    public ShardMapWatcher(RouteTable table, IReadOnlyList<string> endpoints, IShardMapSource source, ClientRuntime runtime, ILogger log)
    {
        _table = table;
        _endpoints = endpoints;
        _source = source;
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
            var (tried, told) = await FollowFirstAsync(addresses, attempt).ConfigureAwait(false);
            attempt += tried - 1;
            pause = told ? PauseLeast : pause;
            await Task.Delay(pause * (0.5 + (_runtime.Chance() / 2)), _runtime.Time, _disposed.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // All of them are asked once before it waits longer.
            if ((attempt + 1) % addresses.Length < tried)
                pause = pause * 2 < PauseGreatest ? pause * 2 : PauseGreatest;
        }
    }

    // Ends with the stream that told something first, or when none of those that were asked does; how many they were.
    private async Task<(int Tried, bool Told)> FollowFirstAsync(string[] addresses, int first)
    {
        var toldFirst = _runtime.NewSignal<string>();
        var follows = new Dictionary<string, (Task Ended, CancellationTokenSource Stop)>();
        try
        {
            while (true)
            {
                var address = addresses[(first + follows.Count) % addresses.Length];
                var stop = CancellationTokenSource.CreateLinkedTokenSource(_disposed.Token);
                follows.Add(address, (FollowAsync(address, toldFirst, stop.Token), stop));
                var isLast = follows.Count == addresses.Length;
                var allEnded = Task.WhenAll(follows.Values.Select(static follow => follow.Ended));
                using var waited = CancellationTokenSource.CreateLinkedTokenSource(_disposed.Token);
                await Task.WhenAny(toldFirst.Task, allEnded, Task.Delay(isLast ? Timeout.InfiniteTimeSpan : Slow, _runtime.Time, waited.Token)).ConfigureAwait(false);
                End(waited);
                if (toldFirst.Task.IsCompleted || allEnded.IsCompleted || _disposed.IsCancellationRequested)
                    break;
            }
            if (!toldFirst.Task.IsCompleted)
                return (follows.Count, false);
            var told = await toldFirst.Task.ConfigureAwait(false);
            foreach (var (address, follow) in follows)
            {
                if (address != told)
                    End(follow.Stop);
            }
            await follows[told].Ended.ConfigureAwait(false);
            return (follows.Count, true);
        }
        finally
        {
            foreach (var (ended, stop) in follows.Values)
            {
                End(stop);
                await ended.ConfigureAwait(false);
                stop.Dispose();
            }
        }
    }

    // On this thread: the simulation has no other.
    private static void End(CancellationTokenSource source) => source.Cancel();

    // Never throws.
    private async Task FollowAsync(string address, TaskCompletionSource<string> toldFirst, CancellationToken cancellationToken)
    {
        try
        {
            await foreach (var map in _source.WatchMap(address, cancellationToken).ConfigureAwait(false))
            {
                if (!_table.TryFold(map, out var foreign))
                {
                    _failure = $"{address} is left out: {foreign}";
                    ClientLog.ForeignCluster(_log, address, foreign);
                    return;
                }
                toldFirst.TrySetResult(address);
            }
            _failure = $"{address} ended the shard map's stream";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or IOException)
        {
            // Not of one that came second.
            if (cancellationToken.IsCancellationRequested)
                return;
            _failure = $"{address}: {(failure is RpcException rpc ? rpc.Status.Detail : failure.Message)}";
        }
        catch (Exception failure)
        {
            // A bug, or a map that nobody foresaw: without the loop the client would never hear of another leader.
            _failure = $"{address}: {failure.GetType().Name}: {failure.Message}";
            ClientMetrics.Unexpected("map");
            ClientLog.Unexpected(_log, "the shard map's stream", address, failure);
        }
    }
}
