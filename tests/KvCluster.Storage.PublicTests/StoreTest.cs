using System.Text;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>A directory for a test, and what its tests have in common.</summary>
public abstract class StoreTest : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    /// <summary>Where the test's store is. Does not exist at first.</summary>
    protected string Folder => Path.Combine(_directory.Path, "data");

    /// <summary>Anything beside it.</summary>
    protected string Beside(string name) => Path.Combine(_directory.Path, name);

    /// <summary>UTF-8.</summary>
    protected static byte[] Bytes(string text) => Encoding.UTF8.GetBytes(text);

    /// <summary>The value of a key as text; null if there is none.</summary>
    protected static string? Read(KvStore store, KvTree tree, string key)
    {
        using var snapshot = store.OpenSnapshot();
        return Read(snapshot, tree, key);
    }

    /// <inheritdoc cref="Read(KvStore, KvTree, string)"/>
    protected static string? Read(KvSnapshot snapshot, KvTree tree, string key) =>
        snapshot.TryGet(tree, Bytes(key), out var value) ? Encoding.UTF8.GetString(value) : null;

    /// <summary>All keys of a tree, as text, with spaces between them.</summary>
    protected static string Keys(KvScan scan)
    {
        var keys = new List<string>();
        foreach (var entry in scan)
            keys.Add(Encoding.UTF8.GetString(entry.Key));
        return string.Join(' ', keys);
    }

    /// <summary>Puts each key with itself as its value, in one batch.</summary>
    protected static async Task PutAsync(KvStore store, KvTree tree, params string[] keys)
    {
        var batch = new KvBatch();
        foreach (var key in keys)
            batch.Put(tree, Bytes(key), Bytes(key));
        Assert.True((await store.WriteAsync(batch)).IsApplied);
    }

    /// <summary>The names and contents of all files under a directory, to see that nothing was changed.</summary>
    protected static string FilesOf(string directory) => string.Join('\n', Directory.EnumerateFileSystemEntries(directory, "*", SearchOption.AllDirectories)
        .Order(StringComparer.Ordinal)
        .Select(static path => (Path: path, IsFile: File.Exists(path) && Path.GetFileName(path) != "LOCK"))
        .Select(
            static one => one.Path + " " + (one.IsFile ? Convert.ToHexString(System.Security.Cryptography.SHA256.HashData(File.ReadAllBytes(one.Path))) : "")));

    public void Dispose()
    {
        _directory.Dispose();
        GC.SuppressFinalize(this);
    }
}
