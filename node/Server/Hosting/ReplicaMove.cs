namespace KvCluster.Node.Hosting;

/// <summary>A replica that is to move.</summary>
/// <param name="Shard">Its shard.</param>
/// <param name="FromNode">Where the voter lies that leaves.</param>
/// <param name="ToNode">Where the new one comes to lie.</param>
/// <param name="Reason">For logs.</param>
internal sealed record ReplicaMove(uint Shard, uint FromNode, uint ToNode, string Reason);
