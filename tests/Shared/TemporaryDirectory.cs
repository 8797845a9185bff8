namespace KvCluster.Shared;

/// <summary>A directory for one test or run, removed with everything in it.</summary>
internal sealed class TemporaryDirectory : IDisposable
{
    public string Path { get; } = Directory.CreateTempSubdirectory("kvcluster-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
