// Reads the state of every replica every three seconds or, if there are very many, as often as a hundredth of a core allows. While nobody listens to the
// metrics it only does so for the samples of the history. One loop on the thread pool; each replica answers between two of its events.
using System.Diagnostics;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Node.Transport;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>Keeps <see cref="NodeMetrics.Measured"/> and <see cref="NodeMetrics.History"/> current.</summary>
internal sealed class MetricsRefresh : IAsyncDisposable
{
    /// <summary>An answer takes about ten microseconds, so this is a hundredth of a core.</summary>
    private static readonly TimeSpan IntervalPerReplica = TimeSpan.FromMilliseconds(1);

    /// <summary>Nothing but a failed replica changes it, and reading it looks at every file.</summary>
    private static readonly TimeSpan AsideInterval = TimeSpan.FromSeconds(10);

    private readonly NodeMetrics _metrics;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly PeerTransport _peers;
    private readonly NodeDirectory _directory;
    private readonly BackgroundLoop _loop;
    private readonly RefreshTimes _times = new();
    private readonly long _began = Stopwatch.GetTimestamp();
    private long _asideTimestamp;
    private long _asideBytes;

    public MetricsRefresh(NodeMetrics metrics, ShardDirectory map, ShardHost shards, PeerTransport peers, NodeDirectory directory, ILogger log)
    {
        _metrics = metrics;
        _map = map;
        _shards = shards;
        _peers = peers;
        _directory = directory;
        _loop = new BackgroundLoop("the refresh of metrics", TakeTurnAsync, Pause, shards.Threads.Timers, log);
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private TimeSpan Pause()
    {
        var interval = IntervalPerReplica * _shards.All.Count;
        return CommonMoments.Until(interval > RefreshTimes.TurnInterval ? interval : RefreshTimes.TurnInterval);
    }

    private async Task TakeTurnAsync(CancellationToken stop)
    {
        var (measures, reads, samples) = _times.Next(Stopwatch.GetElapsedTime(_began), _metrics.WatchesReplicas);
        if (measures)
            _metrics.Activity.Measure((long)RefreshTimes.TurnInterval.TotalMilliseconds);
        if (!reads)
            return;
        var measured = await ReadAsync(stop).ConfigureAwait(false);
        _metrics.Measured = measured;
        if (samples)
            _metrics.History.Add(Sample(measured));
    }

    private HistorySample Sample(MeasuredNode measured)
    {
        var (calls, checkpoints, checkpointBytes) = _metrics.TakeWork();
        return new HistorySample
        {
            UnixUs = (TimeProvider.System.GetUtcNow() - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond,
            Calls = calls,
            LagChanges = measured.Replicas.SelectMany(replica => replica.Followers).Select(follower => follower.LagChanges).DefaultIfEmpty().Max(),
            Memory = MemoryParts.Of(MemoryReport.Of(_shards.Memory)),
            DiskUsedBytes = measured.Replicas.Sum(replica => replica.DataAllocatedBytes + replica.JournalBytes),
            DiskFreeBytes = measured.Disk?.FreeBytes ?? 0,
            Checkpoints = checkpoints,
            CheckpointBytes = checkpointBytes,
        };
    }

    private async Task<MeasuredNode> ReadAsync(CancellationToken stop)
    {
        var shards = _shards.All.OrderBy(static shard => shard.Shard).ToList();
        var round = new MeasuringRound(shards.Count);
        foreach (var (index, shard) in shards.Index())
            shard.Measure(measured => round.Take(index, measured));
        var replicas = await round.All.WaitAsync(stop).ConfigureAwait(false);
        return new MeasuredNode(replicas, [.. _peers.ReadLinks()], _map.Snapshot.Records.Count, ReadDisk());
    }

    private MeasuredDisk? ReadDisk()
    {
        try
        {
            if (_asideTimestamp == 0 || Stopwatch.GetElapsedTime(_asideTimestamp) >= AsideInterval)
                (_asideTimestamp, _asideBytes) = (Stopwatch.GetTimestamp(), _directory.AsideBytes());
            var drive = new DriveInfo(_directory.Location);
            return new MeasuredDisk(drive.TotalSize, drive.AvailableFreeSpace, _asideBytes);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // The disk is missing. The replicas on it report that more prominently.
            return null;
        }
    }
}
