using System.Security.Cryptography;
using Google.Protobuf;
using Google.Protobuf.WellKnownTypes;
using KvCluster.Internal.V1;
using KvCluster.Node.Runtime;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Coordination;

/// <summary>Writes the records of a new cluster, once.</summary>
internal static class ClusterInit
{
    private const uint LeaseMs = 500;

    /// <summary>
    /// Creates the cluster's shards, divided at the split keys. Each has replicas on different nodes, placed so that the preferred leaders (replica
    /// index i mod replicas of shard i) are on different nodes too. The key <c>cluster</c> is written last, so its existence means that all shards exist. A
    /// repeated call completes an interrupted one.
    /// </summary>
    /// <returns>False if the cluster exists; nothing was changed.</returns>
    /// <exception cref="ArgumentException">The parameters are not valid.</exception>
    /// <exception cref="ClusterConflictException">An interrupted call left shards with other ranges, or nodes wait that have data of one.</exception>
    /// <exception cref="CoordinatorUnavailableException">The coordinator did not answer.</exception>
    public static async Task<bool> CreateAsync(ICoordinator coordinator, string cluster, NewCluster created, CancellationToken cancellationToken)
    {
        var keys = new CoordinatorKeys(cluster);
        while ((await coordinator.GetAsync(keys.Cluster, cancellationToken).ConfigureAwait(false)).Value is null)
        {
            var waiting = await WaitingNodes.ReadAsync(coordinator, keys, cancellationToken).ConfigureAwait(false);
            if (waiting.WhyLost() is { } lost)
                throw new ClusterConflictException($"The cluster '{cluster}' was not created, because {lost}.");
            if (await TryCreateAsync(coordinator, cluster, created, waiting, cancellationToken).ConfigureAwait(false) is { } isCreated)
                return isCreated;
        }
        return false;
    }

    /// <summary>
    /// The same for a caller who has found that nothing that waiting nodes say forbids it. A node that comes in between, perhaps with data, ends the creation.
    /// Of its shards some may be there then, which nobody follows: the next creation continues with them, and a recovery of the records removes them.
    /// </summary>
    /// <returns>False if the cluster exists; null if a waiting node has said something since, so that the caller has to look again.</returns>
    /// <inheritdoc cref="CreateAsync"/>
    public static async Task<bool?> TryCreateAsync(
        ICoordinator coordinator, string cluster, NewCluster created, WaitingNodes waiting, CancellationToken cancellationToken)
    {
        var (nodes, replicationFactor, splitKeys) = created;
        Validate(nodes, replicationFactor, splitKeys);
        try
        {
            return await PutAsync(coordinator, new CoordinatorKeys(cluster), created, waiting.Guard, cancellationToken).ConfigureAwait(false);
        }
        catch (CoordinatorGuardException)
        {
            return null;
        }
    }

    private static async Task<bool> PutAsync(
        ICoordinator coordinator, CoordinatorKeys keys, NewCluster created, CoordinatorGuard guard, CancellationToken cancellationToken)
    {
        var (nodes, replicationFactor, splitKeys) = created;
        // Creators that run at once, and one that continues an interrupted creation, use the lineage of the one that wrote the first shard.
        var lineage = Lineage.Create();
        for (var shard = 0; shard <= splitKeys.Count; shard++)
        {
            var record = ShardOf(new((uint)shard), nodes, replicationFactor, splitKeys);
            record.Lineage = lineage.ToByteString();
            var key = keys.Shard(record.ShardId);
            var shardSet = await coordinator.SetUntilSettledAsync(key, 0, RecordText.Format(record), 0, guard, cancellationToken).ConfigureAwait(false);
            if (shardSet.Outcome != SetOutcome.Won)
                lineage = await CheckRangeAsync(coordinator, key, record, isFirst: shard == 0, cancellationToken).ConfigureAwait(false);
        }
        var whole = new ClusterRecord
        {
            FormatLevel = ProgramLevels.Current.Format.Max,
            ContractLevel = ProgramLevels.Current.Contract.Max,
            ReplicationFactor = (uint)replicationFactor,
            ClusterId = Convert.ToHexStringLower(RandomNumberGenerator.GetBytes(16)),
            Created = Timestamp.FromDateTimeOffset(TimeProvider.System.GetUtcNow()),
            LeaseMs = LeaseMs,
            Lineage = lineage.ToByteString(),
        };
        var set = await coordinator.SetUntilSettledAsync(keys.Cluster, 0, RecordText.Format(whole), 0, guard, cancellationToken).ConfigureAwait(false);
        return set.Outcome == SetOutcome.Won;
    }

    private static void Validate(IReadOnlyList<NodeId> nodes, int replicationFactor, IReadOnlyList<ReadOnlyMemory<byte>> splitKeys)
    {
        if (nodes.Count == 0 || nodes.Contains(NodeId.None) || nodes.Distinct().Count() != nodes.Count)
            throw new ArgumentException("The nodes' ids must be 1 or greater, and each must be unique.", nameof(nodes));
        if (replicationFactor < 1 || replicationFactor > nodes.Count)
            throw new ArgumentException($"{replicationFactor} replicas cannot be placed on {nodes.Count} different nodes.", nameof(replicationFactor));
        for (var index = 0; index < splitKeys.Count; index++)
        {
            if (splitKeys[index].IsEmpty || (index > 0 && splitKeys[index - 1].Span.SequenceCompareTo(splitKeys[index].Span) >= 0))
                throw new ArgumentException("The split keys must not be empty, and each must be greater than the one before.", nameof(splitKeys));
        }
    }

    // An interrupted or concurrent call wrote the record. Its shard is as good as ours if it owns the same keys, and is of the lineage of the first shard.
    // Returns that lineage.
    private static async Task<Lineage> CheckRangeAsync(
        ICoordinator coordinator, string key, ShardRecord ours, bool isFirst, CancellationToken cancellationToken)
    {
        var read = await coordinator.GetUntilAnsweredAsync(key, cancellationToken).ConfigureAwait(false);
        var theirs = read.Value is null ? null : RecordText.Parse<ShardRecord>(read.Value);
        var lineage = theirs is null ? Lineage.None : Lineage.Read(theirs.Lineage);
        if (theirs is null || !theirs.Start.Equals(ours.Start)
            || !theirs.End.Equals(ours.End) || lineage == Lineage.None || (!isFirst && !theirs.Lineage.Equals(ours.Lineage)))
            throw new ClusterConflictException(
                $"The record {key} belongs to another, unfinished creation of this cluster. Repeat that one, or delete its shards.");
        return lineage;
    }

    private static ShardRecord ShardOf(ShardId shard, IReadOnlyList<NodeId> nodes, int replicationFactor, IReadOnlyList<ReadOnlyMemory<byte>> splitKeys)
    {
        var record = new ShardRecord
        {
            ShardId = shard,
            Start = shard.Value == 0 ? ByteString.Empty : ByteString.CopyFrom(splitKeys[(int)shard.Value - 1].Span),
            End = shard.Value == splitKeys.Count ? ByteString.Empty : ByteString.CopyFrom(splitKeys[(int)shard.Value].Span),
            Generation = 1,
        };
        var firstNode = FirstNodeOf(shard, nodes.Count, replicationFactor);
        for (var index = 0; index < replicationFactor; index++)
        {
            record.Replicas.Add(new ReplicaRecord
            {
                ReplicaId = NewReplicaId(),
                NodeId = nodes[(firstNode + index) % nodes.Count],
            });
        }
        return record;
    }

    /// <summary>The id of a new replica, random, so that none is used twice; never none.</summary>
    public static ReplicaId NewReplicaId() => new(BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1);

    // The node of replica 0, chosen so that replica (shard mod replicas) is on node (shard mod nodes).
    private static int FirstNodeOf(ShardId shard, int nodeCount, int replicationFactor)
    {
        var preferred = (int)(shard.Value % (uint)replicationFactor);
        return (int)(((shard.Value % (uint)nodeCount) + (uint)(nodeCount - preferred)) % (uint)nodeCount);
    }
}

/// <summary>The parameters with which a cluster is created.</summary>
/// <param name="Nodes">Node ids, at least one, without duplicates.</param>
/// <param name="ReplicationFactor">Replicas per shard, at most the number of nodes.</param>
/// <param name="SplitKeys">The keys at which a new shard begins: not empty, strictly increasing.</param>
internal sealed record NewCluster(IReadOnlyList<NodeId> Nodes, int ReplicationFactor, IReadOnlyList<ReadOnlyMemory<byte>> SplitKeys);
