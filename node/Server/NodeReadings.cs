// Reads the state of every replica once a second or, if there are very many, as often as a hundredth of a core allows. Does nothing while nobody listens to
// the metrics. One loop on the thread pool; each replica answers between two of its events.
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Node.Transport;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>Keeps <see cref="NodeMetrics.Reading"/> current.</summary>
internal sealed class NodeReadings : IAsyncDisposable
{
    private static readonly TimeSpan IntervalMin = TimeSpan.FromSeconds(1);

    /// <summary>An answer takes about ten microseconds, so this is a hundredth of a core.</summary>
    private static readonly TimeSpan IntervalPerReplica = TimeSpan.FromMilliseconds(1);

    private readonly NodeMetrics _metrics;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly PeerTransport _peers;
    private readonly string _dataDirectory;
    private readonly BackgroundLoop _loop;

    public NodeReadings(NodeMetrics metrics, ShardDirectory map, ShardHost shards, PeerTransport peers, string dataDirectory, ILogger log)
    {
        _metrics = metrics;
        _map = map;
        _shards = shards;
        _peers = peers;
        _dataDirectory = dataDirectory;
        _loop = new BackgroundLoop("the readings", TakeTurnAsync, Pause, log);
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private TimeSpan Pause() => IntervalPerReplica * _shards.All.Count is var interval && interval > IntervalMin ? interval : IntervalMin;

    private async Task TakeTurnAsync(CancellationToken stop)
    {
        if (_metrics.WatchesReplicas)
            _metrics.Reading = await ReadAsync(stop).ConfigureAwait(false);
    }

    private async Task<NodeReading> ReadAsync(CancellationToken stop)
    {
        var replicas = await Task.WhenAll(_shards.All.OrderBy(shard => shard.Shard).Select(shard => shard.ReadAsync())).WaitAsync(stop).ConfigureAwait(false);
        return new NodeReading(replicas, [.. _peers.ReadLinks()], _map.Snapshot.Records.Count, FreeBytes());
    }

    private long? FreeBytes()
    {
        try
        {
            return new DriveInfo(_dataDirectory).AvailableFreeSpace;
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // The disk is missing. The replicas on it report that more prominently.
            return null;
        }
    }
}
