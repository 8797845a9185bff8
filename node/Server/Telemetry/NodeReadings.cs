// Asks every replica how it stands, once a second or, where there are very many, as often as a hundredth of a core allows; not at all while nobody
// listens to what comes of it. One loop on the thread pool; each replica answers between two events of its own.
using KvCluster.Node.Hosting;
using KvCluster.Node.Transport;

namespace KvCluster.Node.Telemetry;

/// <summary>Keeps <see cref="NodeMetrics.Reading"/> new.</summary>
internal sealed class NodeReadings : IAsyncDisposable
{
    private static readonly TimeSpan IntervalLeast = TimeSpan.FromSeconds(1);

    /// <summary>An answer takes about ten microseconds, so this is a hundredth of a core.</summary>
    private static readonly TimeSpan IntervalPerReplica = TimeSpan.FromMilliseconds(1);

    private readonly NodeMetrics _metrics;
    private readonly ShardHost _shards;
    private readonly PeerTransport _peers;
    private readonly string _dataDirectory;
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _running;

    public NodeReadings(NodeMetrics metrics, ShardHost shards, PeerTransport peers, string dataDirectory)
    {
        _metrics = metrics;
        _shards = shards;
        _peers = peers;
        _dataDirectory = dataDirectory;
        _running = Task.Run(RunAsync);
    }

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _stopping.Dispose();
    }

    private async Task RunAsync()
    {
        while (!_stopping.IsCancellationRequested)
        {
            var shards = _shards.All;
            if (_metrics.WatchesReplicas)
                _metrics.Reading = await ReadAsync(shards).ConfigureAwait(false);
            var interval = IntervalPerReplica * shards.Count;
            await Task.Delay(interval > IntervalLeast ? interval : IntervalLeast, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private async Task<NodeReading> ReadAsync(IReadOnlyList<HostedShard> shards)
    {
        var replicas = await Task.WhenAll(shards.OrderBy(shard => shard.Shard).Select(shard => shard.ReadAsync())).ConfigureAwait(false);
        return new NodeReading(replicas, [.. _peers.ReadLinks()], FreeBytes());
    }

    private long? FreeBytes()
    {
        try
        {
            return new DriveInfo(_dataDirectory).AvailableFreeSpace;
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // A disk that is away, which the replicas on it say louder.
            return null;
        }
    }
}
