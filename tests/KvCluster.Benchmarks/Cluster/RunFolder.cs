namespace KvCluster.Benchmarks.Cluster;

/// <summary>A folder for one run's data and logs, gone afterwards.</summary>
internal sealed class RunFolder : IDisposable
{
    public string Path { get; } = Directory.CreateTempSubdirectory("kvcluster-benchmark-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
