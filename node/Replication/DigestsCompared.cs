namespace KvCluster.Replication;

/// <summary>A comparison whose digests were all the same.</summary>
/// <param name="Etag">The record at which they were taken.</param>
/// <param name="Replicas">How many voters were compared, the leader included.</param>
/// <param name="AtUs">When it ended, by the leader's boot clock.</param>
internal readonly record struct DigestsCompared(Etag Etag, int Replicas, long AtUs);
