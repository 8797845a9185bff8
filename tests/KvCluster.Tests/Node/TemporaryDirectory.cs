namespace KvCluster.Tests.Node;

/// <summary>A directory of its own for a test, removed with everything in it.</summary>
internal sealed class TemporaryDirectory : IDisposable
{
    public string Path { get; } = Directory.CreateTempSubdirectory("kvcluster-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
