using System.Collections.Concurrent;
using Grpc.Core;
using KvCluster.Client.Runtime;
using KvCluster.Client.Telemetry;
using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Routing;

/// <summary>
/// Keeps a <see cref="RouteTable"/> up to date from the map stream of one node or router at a time. When the stream breaks, it asks the next address: first
/// the given endpoints, then every node in the map. No request has to refresh the map because a leader died. If an address does not answer soon, the next
/// ones are asked as well, and the stream that first sends something is kept.
/// </summary>
internal sealed class ShardMapWatcher : IAsyncDisposable
{
    /// <summary>With these a client finds a cluster that comes back within about a second, and ten thousand clients do not all reconnect at once.</summary>
    private static readonly TimeSpan PauseMin = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan PauseMax = TimeSpan.FromSeconds(1);

    /// <summary>As for calls to a node that is slow to connect to. A map comes with the first answer.</summary>
    private static readonly TimeSpan Slow = TimeSpan.FromMilliseconds(250);

    /// <summary>After so many connections in a row that ended without a byte, an endpoint is no node or router.</summary>
    private const int EndsMax = 5;

    private readonly RouteTable _table;
    private readonly IReadOnlyList<string> _endpoints;
    private readonly IShardMapSource _source;
    private readonly ClientRuntime _runtime;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _disposed = new();
    private readonly TaskCompletionSource _needed;
    private readonly Task _running;
    private readonly ConcurrentDictionary<string, string> _unusable = new();

    // How often in a row each endpoint ended a connection without a byte.
    private readonly ConcurrentDictionary<string, int> _ends = new();
    private volatile string _failure = "no endpoint has answered yet";

    /// <param name="table">Gets the maps.</param>
    /// <param name="endpoints">The addresses that are asked first; at least one.</param>
    /// <param name="source">Asks them.</param>
    /// <param name="runtime">Time and randomness for pauses.</param>
    /// <param name="log">Gets what no caller is told.</param>
    /// <param name="whenNeeded">Nobody is asked before <see cref="Begin"/>.</param>
    public ShardMapWatcher(
        RouteTable table, IReadOnlyList<string> endpoints, IShardMapSource source, ClientRuntime runtime, ILogger log, bool whenNeeded = false)
    {
        _table = table;
        _endpoints = endpoints;
        _source = source;
        _runtime = runtime;
        _log = log;
        _needed = runtime.NewSignal();
        if (!whenNeeded)
            Begin();
        _running = RunAsync();
    }

    /// <summary>Why the last stream ended.</summary>
    public string Failure => _failure;

    /// <summary>
    /// Why no endpoint can be used, if there is no map and every one has last failed for a reason that waiting does not change; otherwise null. They are tried
    /// again all the same, because somebody may correct a name or a certificate.
    /// </summary>
    public string? PermanentFailure => !_table.IsKnown && _unusable.Count > 0 && _endpoints.All(_unusable.ContainsKey) ? _failure : null;

    /// <summary>Begins to ask for the map, if that has not begun.</summary>
    public void Begin() => _needed.TrySetResult();

    public async ValueTask DisposeAsync()
    {
        await _runtime.CancelAsync(_disposed).ConfigureAwait(false);
        Begin();
        await _running.ConfigureAwait(false);
        _disposed.Dispose();
    }

    private async Task RunAsync()
    {
        await _needed.Task.ConfigureAwait(false);
        var pause = PauseMin;
        for (var attempt = 0; !_disposed.IsCancellationRequested; attempt++)
        {
            var addresses = _endpoints.Concat(_table.Nodes.Values).Distinct().ToArray();
            var (tried, told) = await FollowFirstAsync(addresses, attempt).ConfigureAwait(false);
            attempt += tried - 1;
            pause = told ? PauseMin : pause;
            await _runtime.DelayAsync(pause * (0.5 + (_runtime.Chance() / 2)), _disposed.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // All addresses are asked once before the pause grows.
            if ((attempt + 1) % addresses.Length < tried)
                pause = pause * 2 < PauseMax ? pause * 2 : PauseMax;
        }
    }

    // Completes with the stream that sent something first, or when none of the asked addresses does. Also returns how many were asked.
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
                await Task.WhenAny(toldFirst.Task, allEnded, _runtime.DelayAsync(isLast ? Timeout.InfiniteTimeSpan : Slow, waited.Token)).ConfigureAwait(false);
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

    // Runs the callbacks on this thread, because the simulation has no other.
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
                    _failure = $"{address} is not used: {foreign}";
                    ClientLog.ForeignCluster(_log, address, foreign);
                    return;
                }
                _unusable.TryRemove(address, out _);
                _ends.TryRemove(address, out _);
                toldFirst.TrySetResult(address);
            }
            _failure = $"{address} ended the shard map's stream";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or IOException)
        {
            // A stream that lost to another one was cancelled and is not reported.
            if (cancellationToken.IsCancellationRequested)
                return;
            _failure = $"{address}: {(failure is RpcException rpc ? rpc.Status.Detail : failure.Message)}";
            var ends = EndpointFailures.HasEnded(failure) ? _ends.GetValueOrDefault(address) + 1 : 0;
            _ends[address] = ends;
            if (EndpointFailures.IsPermanent(failure) || ends >= EndsMax)
                _unusable[address] = _failure;
            else
                _unusable.TryRemove(address, out _);
        }
        catch (Exception failure)
        {
            // A bug, or an unexpected map. Without this catch the loop would end, and the client would never learn of another leader.
            _failure = $"{address}: {failure.GetType().Name}: {failure.Message}";
            ClientMetrics.Unexpected("map");
            ClientLog.Unexpected(_log, "the shard map's stream", address, failure);
        }
    }
}
