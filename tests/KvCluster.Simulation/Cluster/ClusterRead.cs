namespace KvCluster.Simulation.Cluster;

/// <summary>What a read of whole replicas was answered.</summary>
/// <param name="Etag">Of the snapshot.</param>
/// <param name="Found">Under the keys asked for.</param>
/// <param name="OpenedUs">When the age was taken, in the run's time.</param>
/// <param name="AgeUs">How out of date the replica says it may be, by its own clock; null: it does not say.</param>
internal sealed record ClusterRead(Etag Etag, CommittedLog.Version[] Found, long OpenedUs, ulong? AgeUs)
{
    /// <summary>For a transcript.</summary>
    public string Shown => string.Join(' ', Found.Select(static found => found.Exists ? $"{ClusterData.WriteOf(found.Value)}" : "-"));
}
