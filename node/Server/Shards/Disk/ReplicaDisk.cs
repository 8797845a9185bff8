using KvCluster.Node.Telemetry;
using KvCluster.Replication.State;
using KvCluster.Storage;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Shards.Disk;

/// <summary>
/// The health of the disk under a replica's journal, by its own observations and by the node's judgement. Called on the shard's writer executor; the node's
/// judgement arrives on any thread.
/// </summary>
/// <param name="disk">The node's disk.</param>
/// <param name="nowUs">The boot clock in microseconds.</param>
/// <param name="log">Told when the state changes.</param>
/// <param name="shard">The shard's id.</param>
/// <param name="wake">Schedules a turn of the replica's event loop.</param>
internal sealed partial class ReplicaDisk(NodeDisk disk, Func<long> nowUs, ILogger log, ShardId shard, Action wake) : IDisposable
{
    /// <summary>
    /// How long a lack of space counts after it was met. The leader offers a refused snapshot again after <c>SnapshotRetryUs</c>, five seconds; where it has
    /// stopped to, because the journal suffices by now, the lack is over.
    /// </summary>
    private const long LackUsMax = 30_000_000;

    private readonly SlowDiskJudge _judge = new();
    private NodeDisk.Share? _share;
    private volatile bool _isNodeSlow;
    private volatile RoomLack? _lack;
    private long _judgedUs = long.MinValue;

    /// <summary>The state last told to the core.</summary>
    public DiskState State { get; private set; }

    /// <summary>The space that a snapshot has lacked lately; null if none. Any thread.</summary>
    public RoomLack? Lack => _lack is { } lack && nowUs() - lack.AtUs < LackUsMax ? lack : null;

    /// <summary>A snapshot found no space, with the reason, or found it: null. Any thread.</summary>
    public void KnowRoom(string? lacking)
    {
        if (lacking is null && _lack is null)
            return;
        _lack = lacking is null ? null : new RoomLack(lacking, nowUs());
        wake();
    }

    /// <summary>Registers the replica with the node's disk.</summary>
    /// <param name="leads">Whether the replica leads. Any thread.</param>
    public void Join(Func<bool> leads) => _share = disk.Join(leads, OnNodeDisk);

    /// <summary>Observes the journal after a turn.</summary>
    /// <param name="store">The store in use.</param>
    /// <param name="others">The journal's speed in comparison with the other replicas'.</param>
    /// <param name="durableUs">When more became durable, if it did since the last turn.</param>
    public void Observe(ReplicaStore store, JournalPace others, long? durableUs)
    {
        // Records that wait for space on a full disk tell nothing of its speed.
        _judge.Observe(nowUs(), durableUs, waits: store.Durable.Last.Etag < store.Log.Last.Etag && !store.Space.IsDiskFull);
        if (others.JudgedUs == _judgedUs)
            return;
        _judgedUs = others.JudgedUs;
        _share?.Judge(others.IsSlow);
    }

    /// <summary>Updates <see cref="State"/>. True if it has changed and the core must be told.</summary>
    public bool TryChange(ReplicaStore store)
    {
        var state = store.Space.IsDiskFull || Lack is not null ? DiskState.Full : _judge.IsSlow || _isNodeSlow ? DiskState.Slow : DiskState.Healthy;
        if (state == State)
            return false;
        State = state;
        Told(log, shard, state.ToString().ToLowerInvariant());
        return true;
    }

    /// <summary>The replica has ended.</summary>
    public void Dispose() => _share?.Dispose();

    private void OnNodeDisk(bool isSlow)
    {
        _isNodeSlow = isSlow;
        wake();
    }

    [LoggerMessage(4, LogLevel.Warning, "shard {Shard}: the journal's disk is {State}", EventName = "Disk")]
    private static partial void Told(ILogger log, ShardId shard, string state);
}
