namespace KvCluster.Node.Shards;

/// <summary>This replica was taken out of service because its content is not believed; a new one takes its place.</summary>
internal sealed class QuarantinedException(string why) : Exception($"Quarantined: {why}.");
