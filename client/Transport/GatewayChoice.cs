using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.Client.Telemetry;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Transport;

/// <summary>
/// The endpoints of a client in gateway mode, which sends everything to routers. It takes them in turn and skips for a moment those that could not be reached.
/// If there are several, it uses none before that one has said which cluster it belongs to. Used by <see cref="CallRouter"/>, <see cref="ScanWalk"/> and
/// <see cref="RouterFanOut"/>. Thread-safe.
/// </summary>
internal sealed class GatewayChoice : IDestinations
{
    /// <summary>How soon an endpoint that refused connections is tried again. Calls that wait for it lose little, and there are others.</summary>
    private const int PauseMs = 500;

    private static readonly TimeSpan LookPauseMin = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan LookPauseMax = TimeSpan.FromSeconds(5);

    private readonly IReadOnlyList<string> _endpoints;
    private readonly RouteTable _table;
    private readonly INodeConnector _connector;
    private readonly ClientRuntime _runtime;
    private readonly ILogger _log;
    private readonly NodeConnections _connections;
    private readonly bool[] _isOurs;
    private readonly long[] _pausedUntilMs;
    private readonly CancellationTokenSource _disposed = new();
    private readonly Task _looking;
    private TaskCompletionSource _found;
    private volatile string _failure = "no endpoint has answered yet";
    private uint _turn = uint.MaxValue;

    /// <param name="options">Provides the endpoints.</param>
    /// <param name="table">Knows the cluster.</param>
    /// <param name="connector">Connects to them.</param>
    /// <param name="runtime">Time and randomness for waits.</param>
    /// <param name="connections">Knows which of their streams have just broken.</param>
    public GatewayChoice(KvClientOptions options, RouteTable table, INodeConnector connector, ClientRuntime runtime, NodeConnections connections)
    {
        _endpoints = [.. options.EndpointsInUse.Distinct()];
        (_table, _connector, _runtime, _connections, _log) = (table, connector, runtime, connections, options.Log);
        _isOurs = new bool[_endpoints.Count];
        _pausedUntilMs = new long[_endpoints.Count];
        _found = runtime.NewSignal();
        // A single endpoint needs no check, because there is no other to disagree with.
        if (_endpoints.Count == 1)
            _isOurs[0] = true;
        _looking = _endpoints.Count <= 1 ? Task.CompletedTask : Task.WhenAll(Enumerable.Range(0, _endpoints.Count).Select(LookAsync));
    }

    /// <summary>Why none can be used, for an error message.</summary>
    public string Failure => $"none of the endpoints can be used: {PausedFailure() ?? _failure}";

    /// <summary>A router finds the shard by itself.</summary>
    public bool NeedMap => false;

    /// <inheritdoc/>
    public Destination ForCall(ShardRoute? route, int turn, bool atAnyReplica) => TryNext(out var address) ? new Destination(address, null)
        : Slow() is { } slow ? new Destination(slow, null) { IsSlow = true }
        : new Destination(null, Failure);

    /// <summary>The next router, or the same one if there is no other. It spreads reads over the replicas by itself.</summary>
    /// <inheritdoc/>
    public Destination ForHedge(ShardRoute? route, string first) =>
        // Calls of others take turns as well, so the next turn may be that of the first one.
        TryNext(out var address) && (address != first || TryNext(out address)) ? new Destination(address, null) : new Destination(null, Failure);

    /// <inheritdoc/>
    public Destination ForStream(ShardRoute? route, int turn, bool atAnyReplica) =>
        TryNext(out var address) ? new Destination(address, null) : new Destination(null, Failure);

    /// <inheritdoc/>
    public CallInvoker OperatorCalls(CallRouter calls, NodeChannels channels) => new RouterFanOut(this, channels);

    /// <summary>Returns the next endpoint; false if none can be used for the moment.</summary>
    public bool TryNext([NotNullWhen(true)] out string? address)
    {
        var turn = Interlocked.Increment(ref _turn);
        var now = _runtime.NowMs;
        for (var place = 0u; place < _endpoints.Count; place++)
        {
            var index = (int)((turn + place) % (uint)_endpoints.Count);
            if (!Volatile.Read(ref _isOurs[index]) || now < Volatile.Read(ref _pausedUntilMs[index]))
                continue;
            address = _endpoints[index];
            if (!_connections.To(address).IsPaused)
                return true;
        }
        address = null;
        return false;
    }

    /// <summary>Waits until an endpoint can be used, for a fraction of the pause at most. The caller then looks again.</summary>
    public async Task WaitAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        var left = Math.Clamp(deadlineMs - _runtime.NowMs, 0, PauseMs / 5);
        await Task.WhenAny(Volatile.Read(ref _found).Task, _runtime.DelayAsync(TimeSpan.FromMilliseconds(left), cancellationToken)).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
    }

    /// <summary>Skips an endpoint for a moment because it could not be reached.</summary>
    public void Pause(string address, string failure)
    {
        _failure = failure;
        for (var index = 0; index < _endpoints.Count; index++)
        {
            if (_endpoints[index] == address)
                Volatile.Write(ref _pausedUntilMs[index], _runtime.NowMs + PauseMs);
        }
    }

    public async ValueTask DisposeAsync()
    {
        await _runtime.CancelAsync(_disposed).ConfigureAwait(false);
        _found.TrySetResult();
        await _looking.ConfigureAwait(false);
        _disposed.Dispose();
    }

    // An endpoint of our cluster whose connection is still being made.
    private string? Slow()
    {
        for (var index = 0; index < _endpoints.Count; index++)
        {
            if (Volatile.Read(ref _isOurs[index]) && _connections.To(_endpoints[index]).IsSlow)
                return _endpoints[index];
        }
        return null;
    }

    // Why an endpoint of our cluster has no connection; null if none says so.
    private string? PausedFailure()
    {
        for (var index = 0; index < _endpoints.Count; index++)
        {
            if (Volatile.Read(ref _isOurs[index]) && _connections.To(_endpoints[index]) is { IsPaused: true, Failure: { Length: > 0 } failure })
                return failure;
        }
        return null;
    }

    // Ends when the endpoint is known to belong to our cluster.
    private async Task LookAsync(int index)
    {
        for (var pause = LookPauseMin; !_disposed.IsCancellationRequested; pause = pause * 2 < LookPauseMax ? pause * 2 : LookPauseMax)
        {
            if (await IsOursAsync(_endpoints[index]).ConfigureAwait(false))
            {
                Volatile.Write(ref _isOurs[index], true);
                Interlocked.Exchange(ref _found, _runtime.NewSignal()).TrySetResult();
                return;
            }
            await _runtime.DelayAsync(pause * (0.5 + (_runtime.Chance() / 2)), _disposed.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private async Task<bool> IsOursAsync(string address)
    {
        try
        {
            await foreach (var map in _connector.WatchMap(address, _disposed.Token).ConfigureAwait(false))
            {
                if (_table.TryFold(map, out var foreign))
                    return true;
                _failure = $"{address}: {foreign}";
                ClientLog.ForeignCluster(_log, address, foreign);
                return false;
            }
            _failure = $"{address} ended the shard map's stream";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or IOException)
        {
            _failure = $"{address}: {(failure is RpcException rpc ? rpc.Status.Detail : failure.Message)}";
        }
        catch (Exception failure)
        {
            _failure = $"{address}: {failure.Message}";
            ClientMetrics.Unexpected("gateway");
            ClientLog.Unexpected(_log, "the check of an endpoint", address, failure);
        }
        return false;
    }
}
