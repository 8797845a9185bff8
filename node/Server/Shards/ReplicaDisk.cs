using KvCluster.Node.Telemetry;
using KvCluster.Replication.State;
using KvCluster.Storage;

namespace KvCluster.Node.Shards;

/// <summary>
/// The health of the disk under a replica's journal, by its own observations and by the node's judgement. Called on the shard's writer executor; the node's
/// judgement arrives on any thread.
/// </summary>
/// <param name="context">The log and the node's disk.</param>
/// <param name="shard">The shard's id.</param>
/// <param name="wake">Schedules a turn of the replica's event loop.</param>
internal sealed class ReplicaDisk(ShardReplicaContext context, ShardId shard, Action wake) : IDisposable
{
    private readonly DiskPace _pace = new();
    private NodeDisk.Share? _share;
    private volatile bool _isNodeSlow;
    private long _judgedUs = long.MinValue;

    /// <summary>The state last told to the core.</summary>
    public DiskState State { get; private set; }

    /// <summary>Registers the replica with the node's disk.</summary>
    /// <param name="leads">Whether the replica leads. Any thread.</param>
    public void Join(Func<bool> leads) => _share = context.Disk.Join(leads, OnNodeDisk);

    /// <summary>Observes the journal after a turn.</summary>
    /// <param name="store">The store in use.</param>
    /// <param name="others">The journal's speed in comparison with the other replicas'.</param>
    /// <param name="durableRose">Whether more became durable since the last turn.</param>
    public void Observe(ReplicaStore store, JournalPace others, bool durableRose)
    {
        // Records that wait for space on a full disk tell nothing of its speed.
        _pace.Observe(context.NowUs(), durableRose, waits: store.Durable.Last.Etag < store.Log.Last.Etag && !store.Space.IsDiskFull);
        if (others.JudgedUs == _judgedUs)
            return;
        _judgedUs = others.JudgedUs;
        _share?.Judge(others.IsSlow);
    }

    /// <summary>Updates <see cref="State"/>. True if it has changed and the core must be told.</summary>
    public bool TryChange(ReplicaStore store)
    {
        var state = store.Space.IsDiskFull ? DiskState.Full : _pace.IsSlow || _isNodeSlow ? DiskState.Slow : DiskState.Healthy;
        if (state == State)
            return false;
        State = state;
        ShardLog.Disk(context.Log, shard, state.ToString().ToLowerInvariant());
        return true;
    }

    /// <summary>The replica has ended.</summary>
    public void Dispose() => _share?.Dispose();

    private void OnNodeDisk(bool isSlow)
    {
        _isNodeSlow = isSlow;
        wake();
    }
}
