using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>An open store of one engine, in a directory of its own that is deleted at the end.</summary>
internal sealed class EngineStore(EngineSystem system, string directory) : IDisposable
{
    private IEngine? _engine = system.Open(directory);

    public EngineSystem System => system;

    public string Directory => directory;

    /// <summary>The engine with the open store.</summary>
    public IEngine Engine => _engine ?? throw new InvalidOperationException("The store is closed.");

    /// <summary>Closes the store; its files stay.</summary>
    public void Close()
    {
        _engine?.Dispose();
        _engine = null;
    }

    /// <summary>Opens it again.</summary>
    public void Open() => _engine = system.Open(directory);

    /// <summary>Ends our engine as if its process had been killed; the files stay.</summary>
    public void Kill()
    {
        ((KvClusterEngine)Engine).Kill();
        _engine = null;
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Close();
        global::System.IO.Directory.Delete(directory, recursive: true);
    }
}

/// <summary>A store of each engine, open at the same time.</summary>
internal sealed class EngineStores(IEnumerable<EngineStore> stores) : IDisposable
{
    public IReadOnlyList<EngineStore> All { get; } = [.. stores];

    /// <inheritdoc/>
    public void Dispose()
    {
        foreach (var store in All)
            store.Dispose();
    }
}
