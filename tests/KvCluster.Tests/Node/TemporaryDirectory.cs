namespace KvCluster.Tests.Node;

/// <summary>A folder of its own for a test, removed with all that is in it.</summary>
internal sealed class TemporaryDirectory : IDisposable
{
    public string Path { get; } = Directory.CreateTempSubdirectory("kvcluster-").FullName;

    public void Dispose() => Directory.Delete(Path, recursive: true);
}
