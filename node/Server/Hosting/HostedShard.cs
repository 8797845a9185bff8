using KvCluster.Node.Map;
using KvCluster.Node.Shards;
using KvCluster.Node.Telemetry;
using KvCluster.Storage.Encoding;
using KvCluster.V1;

namespace KvCluster.Node.Hosting;

/// <summary>A shard of which this node has, or should have, a replica. Immutable but for the replica's own state.</summary>
/// <param name="record">The shard's record when the replica was opened.</param>
/// <param name="replica">Null: it does not work, for the reason in <paramref name="failure"/>.</param>
/// <param name="openAgainIn">Without a replica: what was in the way may pass, and it is tried again after this; null: it does not.</param>
/// <param name="isLost">Without a replica: what it held is gone or damaged, and only a new one, from its peers, can take its place.</param>
internal sealed class HostedShard(ShardRecord record, ulong replicaId, ShardReplica? replica, string failure, bool isLost, TimeSpan? openAgainIn = null)
{
    private readonly ShardRoute _routeOfRecord = ShardDirectorySnapshot.RouteOf(record);

    public ShardReplica? Replica { get; } = replica;

    public uint Shard { get; } = record.Shard;

    /// <summary>The replica's id in the shard's record.</summary>
    public ulong ReplicaId { get; } = replicaId;

    /// <summary>Why there is no replica.</summary>
    public string Failure => failure;

    /// <summary>What kept its replica from being opened may pass: it is tried again after this. Null: it does not.</summary>
    public TimeSpan? OpenAgainIn => openAgainIn;

    /// <summary>What was seen of the shard's record when it was opened.</summary>
    public Retirement Seen { get; } = new(record.Generation, record.Epoch, 0);

    /// <summary>It cannot serve again, and its peers have what it held: it is to be replaced by a new replica.</summary>
    public bool IsLost => isLost || Replica?.Failure is CorruptStoreException or QuarantinedException;

    /// <summary>The newest route that the replica knows.</summary>
    public ShardRoute Route => Replica?.Route ?? _routeOfRecord;

    public bool Owns(ReadOnlySpan<byte> key) => Ranges.Contain(Route.Start.Span, Route.End.Span, key);

    /// <summary>How it stands, for metrics.</summary>
    public Task<ReplicaReading> ReadAsync() => Replica is null ? Task.FromResult(new ReplicaReading { Shard = Shard, Role = "failed" }) : Replica.ReadAsync();

    public async Task<ReplicaStatus> StatusAsync(bool digest, bool detail, CancellationToken cancellationToken = default) => Replica is null
        ? new ReplicaStatus { Route = Route, Replica = ReplicaId, Role = "failed", Failure = failure }
        : await Replica.StatusAsync(digest, detail, cancellationToken).ConfigureAwait(false);
}
