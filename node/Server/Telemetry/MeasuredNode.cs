using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Telemetry;

/// <summary>
/// The values that a node's metrics show of its replicas and streams: their state at one moment. The metrics themselves are in <see cref="NodeMetrics"/>.
/// Immutable.
/// </summary>
/// <param name="Replicas">The replicas, by shard.</param>
/// <param name="Links">Streams to other nodes.</param>
/// <param name="MapShards">Number of shards of the cluster in the node's map.</param>
/// <param name="Disk">The data directory's disk; null if the system does not tell.</param>
internal sealed record MeasuredNode(IReadOnlyList<MeasuredReplica> Replicas, IReadOnlyList<MeasuredLink> Links, int MapShards, MeasuredDisk? Disk)
{
    public static readonly MeasuredNode None = new([], [], 0, null);
}

/// <summary>The space on a data directory's disk.</summary>
/// <param name="Bytes">Size of the file system.</param>
/// <param name="FreeBytes">What is free of it.</param>
/// <param name="AsideBytes">What copies of replicas take that were set aside for somebody to examine.</param>
internal sealed record MeasuredDisk(long Bytes, long FreeBytes, long AsideBytes);

/// <summary>The state of a replica at one moment.</summary>
internal sealed record MeasuredReplica
{
    public required ShardId Shard { get; init; }

    /// <summary>What it does; null if it has failed.</summary>
    public required ReplicaRole? Role { get; init; }

    public ulong Epoch { get; init; }

    /// <summary>The last change that it has applied.</summary>
    public ulong Change { get; init; }

    /// <summary>
    /// It leads and a majority follows it, as far as it knows. A leader that has lost its followers keeps its role until it hears of another leader.
    /// </summary>
    public bool IsFollowed { get; init; }

    /// <summary>It works, but knows no leader of its shard that a majority follows.</summary>
    public bool IsLeaderless { get; init; }

    public bool HasLease { get; init; }

    public DiskState Disk { get; init; }

    public long Keys { get; init; }

    /// <summary>Sessions with a lifetime, if it leads.</summary>
    public long SessionsWithLifetime { get; init; }

    /// <summary>Length of the data file.</summary>
    public long DataBytes { get; init; }

    /// <summary>What the data file takes from the file system.</summary>
    public long DataAllocatedBytes { get; init; }

    public long JournalBytes { get; init; }

    /// <summary>The part of it that is only kept for followers.</summary>
    public long JournalKeptBytes { get; init; }

    /// <summary>Pages in memory that are in no checkpoint, or that readers need.</summary>
    public long ChangedBytes { get; init; }

    /// <summary>Open snapshots.</summary>
    public int Readers { get; init; }

    /// <summary>Age of the oldest open snapshot.</summary>
    public TimeSpan SnapshotAge { get; init; }

    /// <summary>Memory and file space that only snapshots, or checkpoints being sent, keep from being reused.</summary>
    public long PinnedBytes { get; init; }

    /// <summary>The other replicas, if it leads.</summary>
    public IReadOnlyList<MeasuredFollower> Followers { get; init; } = [];
}

/// <summary>How far a follower was behind its leader at one moment.</summary>
/// <param name="Node">The follower's node.</param>
/// <param name="LagBytes">Bytes of journal that it has not acknowledged, as far as the leader's journal reaches back.</param>
/// <param name="LagChanges">Changes that it has not acknowledged.</param>
internal readonly record struct MeasuredFollower(NodeId Node, long LagBytes, long LagChanges);

/// <summary>The state of a stream to another node at one moment.</summary>
/// <param name="Node">The other node.</param>
/// <param name="IsUp">Whether it is open and something was received on it within the last seconds.</param>
/// <param name="WaitingBytes">Bytes of frames that were not sent yet.</param>
/// <param name="Dropped">Frames dropped since the start.</param>
internal readonly record struct MeasuredLink(NodeId Node, bool IsUp, long WaitingBytes, long Dropped);

/// <summary>Collects the states of many replicas, which come on the threads of these, and wakes whoever waits for them once. Any thread.</summary>
internal sealed class MeasuringRound
{
    private readonly MeasuredReplica[] _measured;
    private readonly TaskCompletionSource<IReadOnlyList<MeasuredReplica>> _all = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _left;

    /// <param name="count">Number of replicas.</param>
    public MeasuringRound(int count)
    {
        (_measured, _left) = (new MeasuredReplica[count], count);
        if (count == 0)
            _all.SetResult(_measured);
    }

    /// <summary>The states of all, in the order of the replicas.</summary>
    public Task<IReadOnlyList<MeasuredReplica>> All => _all.Task;

    /// <summary>Takes the state of one.</summary>
    /// <param name="index">Index of the replica, each once.</param>
    /// <param name="measured">Its state.</param>
    public void Take(int index, MeasuredReplica measured)
    {
        _measured[index] = measured;
        if (Interlocked.Decrement(ref _left) == 0)
            _all.SetResult(_measured);
    }
}
