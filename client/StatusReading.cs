using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>Status messages as the public types show them.</summary>
internal static class StatusReading
{
    public static ClusterStatus ToStatus(GetStatusResponse message) => new(message.Cluster, [.. message.Nodes.Select(ToNode)]);

    public static ReplicaCheckpoint ToCheckpoint(V1.ReplicaCheckpoint message) =>
        new(message.Node, message.Shard, message.Etag.ToEtag(), message.DataBytes, message.Error);

    private static NodeStatus ToNode(V1.NodeStatus message) =>
        new(message.Node, message.Address, message.Version, message.Error, [.. message.Replicas.OrderBy(replica => replica.Route.Shard).Select(ToReplica)]);

    private static ReplicaStatus ToReplica(V1.ReplicaStatus message) => new(
        message.Route.Shard,
        message.Route.Start.Memory,
        message.Route.End.Memory,
        message.Role,
        message.Epoch,
        message.Route.Leader,
        message.Last.ToEtag(),
        message.Durable.ToEtag(),
        message.Committed.ToEtag(),
        message.Applied.ToEtag(),
        message.Keys,
        message.DataBytes,
        message.JournalBytes,
        message.Digest.Memory,
        message.DigestEtag.ToEtag(),
        message.Failure);
}
