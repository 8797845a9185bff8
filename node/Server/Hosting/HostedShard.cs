using KvCluster.Internal.V1;
using KvCluster.Node.Map;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Hosting;

/// <summary>A shard of which this node has, or should have, a replica. Immutable except for the replica's own state.</summary>
/// <param name="record">The shard's record when the replica was opened.</param>
/// <param name="replica">Null if it does not work, for the reason in <paramref name="failure"/>.</param>
/// <param name="openAgainIn">Without a replica: the time after which opening is retried, if the cause may pass; null if it does not pass.</param>
/// <param name="isLost">Without a replica: its contents are gone or damaged, and only a new replica, built from its peers, can replace it.</param>
/// <param name="lacksRoom">Without a replica: the lack of space for which opening or creating it failed; null if that was not the cause.</param>
internal sealed class HostedShard(
    ShardRecord record, ReplicaId replicaId, ShardReplica? replica, string failure, bool isLost, TimeSpan? openAgainIn = null, RoomLack? lacksRoom = null)
{
    private readonly ShardRoute _routeOfRecord = ShardDirectorySnapshot.RouteOf(record);

    public ShardReplica? Replica { get; } = replica;

    public ShardId Shard { get; } = record.ShardId;

    /// <summary>The shard as positions in answers name it.</summary>
    public LineageShard InLineage { get; } = new(record.ShardId, Lineage.Read(record.Lineage).Head);

    /// <summary>The replica's id in the shard's record.</summary>
    public ReplicaId ReplicaId { get; } = replicaId;

    /// <summary>Why there is no replica.</summary>
    public string Failure => failure;

    /// <summary>The time after which opening the replica is retried, if the cause of its failure may pass; null if it does not pass.</summary>
    public TimeSpan? OpenAgainIn => openAgainIn;

    /// <summary>What was seen of the shard's record when the replica was opened.</summary>
    public Retirement Seen { get; } = new(record.Generation, record.Epoch, new RecordVersion(record.Recovery, 0));

    /// <summary>It cannot serve again, and its peers have its contents. It is to be replaced by a new replica.</summary>
    public bool IsLost => isLost || DamagedReplica.IsLost(Replica?.Failure);

    /// <summary>
    /// The space without which the replica cannot be created, opened or rebuilt here; null if it lacks none. The same object until the lack is met again. Any
    /// thread.
    /// </summary>
    public RoomLack? LacksRoom => Replica is null ? lacksRoom : Replica.LacksRoom;

    /// <summary>The newest route that the replica knows.</summary>
    public ShardRoute Route => Replica?.Route ?? _routeOfRecord;

    /// <summary>The shard's time at this moment, in milliseconds, by which the lives of keys are counted, as far as the replica knows it.</summary>
    public ulong TimeMs => Replica!.Reads.ShardTimeMs;

    public bool Owns(ReadOnlySpan<byte> key) => Ranges.Contain(Route.Start.Span, Route.End.Span, key);

    /// <summary>The replica's state for metrics.</summary>
    /// <param name="told">Called once, on this thread or on the replica's writer executor. Must be short and must not run anybody's continuation.</param>
    public void Measure(Action<MeasuredReplica> told)
    {
        if (Replica is null)
            told(new MeasuredReplica { Shard = Shard, Role = null, Disk = lacksRoom is null ? DiskState.Healthy : DiskState.Full });
        else
            Replica.Report.Measure(told);
    }

    /// <summary>What the replica knows of the shard's replicas; null if it has failed or stopped.</summary>
    public Task<LeaderView?> LookAsync() => Replica?.Report.LookAsync() ?? Task.FromResult<LeaderView?>(null);

    /// <summary>The shard's entry in <c>kv status</c>.</summary>
    public async Task<ReplicaStatus> StatusAsync(bool digest, bool detail, CancellationToken cancellationToken) => Replica is null
        ? new ReplicaStatus
        {
            Route = Route, ReplicaId = ReplicaId, Role = ReplicaStatus.Types.Role.Failed, Failure = failure, LacksSpace = lacksRoom?.Reason ?? ""
        }
        : await Replica.Report.StatusAsync(digest, detail, cancellationToken).ConfigureAwait(false);
}
