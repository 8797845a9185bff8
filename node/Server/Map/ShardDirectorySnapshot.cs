using System.Collections.Immutable;
using KvCluster.Internal.V1;
using KvCluster.Node.Runtime;
using KvCluster.V1;

namespace KvCluster.Node.Map;

/// <summary>What a node knew of shards and nodes at one moment. Immutable; swapped by reference.</summary>
internal sealed class ShardDirectorySnapshot
{
    /// <summary>The snapshot before the first list.</summary>
    public static readonly ShardDirectorySnapshot Empty = new(
        ImmutableDictionary<ShardId, (ShardRecord, long)>.Empty,
        ImmutableDictionary<ShardId, ShardRoute>.Empty, ImmutableDictionary<NodeId, NodeRecord>.Empty, revision: 0);

    private readonly TaskCompletionSource _replaced = new(TaskCreationOptions.RunContinuationsAsynchronously);

    public ShardDirectorySnapshot(
        ImmutableDictionary<ShardId, (ShardRecord Record, long Revision)> records,
        ImmutableDictionary<ShardId, ShardRoute> ownRoutes,
        ImmutableDictionary<NodeId, NodeRecord> nodes,
        long revision)
    {
        Revision = revision;
        Records = records;
        OwnRoutes = ownRoutes;
        Nodes = nodes;
        Routes = [.. records.Values.Select(entry => Fold(RouteOf(entry.Record), ownRoutes.GetValueOrDefault(entry.Record.ShardId)))
            .OrderBy(route => route.Start.Memory, KeyOrder)];
    }

    /// <summary>The shards' records with their mod revisions.</summary>
    public ImmutableDictionary<ShardId, (ShardRecord Record, long Revision)> Records { get; }

    /// <summary>What this node's replicas know of their shards' leaders.</summary>
    public ImmutableDictionary<ShardId, ShardRoute> OwnRoutes { get; }

    /// <summary>
    /// The nodes last registered. A node that is no longer registered stays while it has a replica, because it may only be cut off from the coordinator.
    /// </summary>
    public ImmutableDictionary<NodeId, NodeRecord> Nodes { get; }

    /// <summary>The coordinator's revision up to which the records were read. Never decreases.</summary>
    public long Revision { get; }

    /// <summary>One route per shard, ordered by start.</summary>
    public ImmutableArray<ShardRoute> Routes { get; }

    /// <summary>Completes when there is a newer snapshot.</summary>
    public Task Replaced => _replaced.Task;

    private static Comparer<ReadOnlyMemory<byte>> KeyOrder { get; } = Comparer<ReadOnlyMemory<byte>>.Create((x, y) => x.Span.SequenceCompareTo(y.Span));

    /// <summary>The route in a record. Its leader may not serve yet.</summary>
    public static ShardRoute RouteOf(ShardRecord record)
    {
        var route = new ShardRoute { ShardId = record.ShardId, Start = record.Start, End = record.End, Generation = record.Generation, Epoch = record.Epoch };
        foreach (var replica in record.Replicas)
        {
            if (replica.ReplicaId == record.LeaderId)
                route.LeaderId = replica.NodeId;
            if (!replica.Learner)
                route.Nodes.Add(replica.Node);
        }
        return route;
    }

    public ShardRoute? Find(ReadOnlySpan<byte> key)
    {
        var index = Ranges.FindAt(Routes.AsSpan(), static route => route.Start.Memory, key);
        return index >= 0 && Ranges.Contain(Routes[index].Start.Span, Routes[index].End.Span, key) ? Routes[index] : null;
    }

    public ShardRoute? FindBefore(ReadOnlySpan<byte> key)
    {
        var index = Ranges.FindBefore(Routes.AsSpan(), static route => route.Start.Memory, key);
        return index >= 0 ? Routes[index] : null;
    }

    /// <summary>The node that leads a shard, as far as is known; null if there is no leader or its node is not known.</summary>
    public NodeRecord? LeaderOf(ShardId shard) =>
        Routes.FirstOrDefault(route => route.ShardId == shard) is { } route ? Nodes.GetValueOrDefault(route.LeaderId) : null;

    /// <summary>The whole snapshot, as the first message of a map stream.</summary>
    public ShardMap Describe(NodeIdentity identity)
    {
        var map = WithoutContent(identity);
        map.Complete = true;
        map.Shards.AddRange(Routes);
        map.Nodes.AddRange(Nodes.Values.Select(AddressOf));
        return map;
    }

    /// <summary>The changes since an older snapshot, or the whole snapshot if a shard or a node is gone.</summary>
    public ShardMap Since(ShardDirectorySnapshot older, NodeIdentity identity)
    {
        if (older.Records.Keys.Any(shard => !Records.ContainsKey(shard)) || older.Nodes.Keys.Any(node => !Nodes.ContainsKey(node)))
            return Describe(identity);
        var known = older.Routes.ToDictionary(route => route.ShardId);
        var changes = WithoutContent(identity);
        changes.Shards.AddRange(Routes.Where(route => !known.TryGetValue(route.ShardId, out var before) || !before.Equals(route)));
        changes.Nodes.AddRange(
            Nodes.Values.Where(node => !older.Nodes.TryGetValue(node.NodeId, out var before) || !AddressOf(before).Equals(AddressOf(node))).Select(AddressOf));
        return changes;
    }

    private ShardMap WithoutContent(NodeIdentity identity) =>
        new() { Cluster = identity.Cluster, ClusterId = identity.ClusterId, Revision = (ulong)Revision, Lineage = identity.Lineage.ToByteString() };

    /// <summary>Wakes everyone who waits for a newer snapshot.</summary>
    public void SetReplaced() => _replaced.TrySetResult();

    // A replica hears its leader's own frames, which are newer than the record. But a leader that it has not heard from yet is in the record only.
    private static ShardRoute Fold(ShardRoute ofRecord, ShardRoute? own)
    {
        if (own is null || own.Generation < ofRecord.Generation)
            return ofRecord;
        return own.LeaderId.IsNone && own.Epoch <= ofRecord.Epoch ? ofRecord : own;
    }

    private static NodeAddress AddressOf(NodeRecord node) => new() { Node = node.Node, Address = node.Address, AdminAddress = node.AdminAddress };
}
