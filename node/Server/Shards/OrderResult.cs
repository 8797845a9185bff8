namespace KvCluster.Node.Shards;

/// <summary>How handing a leadership over ended.</summary>
/// <param name="Done">The replica asked for leads, or is about to.</param>
/// <param name="Reason">Why it ended; for people.</param>
internal readonly record struct OrderResult(bool Done, string Reason);
