namespace KvCluster.Node.Shards;

/// <summary>How an order to a leader ended: to hand over, or to change the shard's replicas.</summary>
/// <param name="Done">It was carried out.</param>
/// <param name="Reason">Why it ended so; for people.</param>
internal readonly record struct OrderResult(bool Done, string Reason);
