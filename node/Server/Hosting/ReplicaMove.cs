namespace KvCluster.Node.Hosting;

/// <summary>A replica that is to move.</summary>
/// <param name="Shard">Its shard.</param>
/// <param name="FromNode">Where the replica lies that leaves; 0: none does, the shard lacks a voter.</param>
/// <param name="ToNode">Where the new one comes to lie; 0: nowhere, it is a learner that leaves.</param>
/// <param name="Reason">For logs.</param>
internal sealed record ReplicaMove(uint Shard, uint FromNode, uint ToNode, string Reason);
