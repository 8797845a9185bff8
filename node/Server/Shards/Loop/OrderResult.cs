namespace KvCluster.Node.Shards.Loop;

/// <summary>The result of an order to a leader: a transfer, or a change of the shard's replicas.</summary>
/// <param name="Done">Whether it was carried out.</param>
/// <param name="Reason">The reason, for people.</param>
internal readonly record struct OrderResult(bool Done, string Reason);
