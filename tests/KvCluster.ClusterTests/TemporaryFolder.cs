namespace KvCluster.ClusterTests;

/// <summary>A folder for one test, gone afterwards.</summary>
internal sealed class TemporaryFolder : IDisposable
{
    public string Path { get; } = Directory.CreateTempSubdirectory("kvcluster-test-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
