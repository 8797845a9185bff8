using KvCluster.Storage.Context;

namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>An engine that is installed.</summary>
/// <param name="Name">Its name in the report.</param>
/// <param name="Open">Opens the store in a directory, or creates one if the directory does not exist.</param>
internal sealed record EngineSystem(string Name, Func<string, IEngine> Open)
{
    public const string KvCluster = "kvcluster";
    public const string Lmdb = "lmdb";
    public const string RocksDb = "rocksdb";
    public const string KvStore = "KvStore";

    public static EngineSystem Ours { get; } = new(KvCluster, directory => new KvClusterEngine(directory));

    /// <summary>
    /// Ours with bounds of its own. A quarter of its memory budget is what <see cref="StoreOptions.CheckpointScratchBytes"/> has, so that as many changed pages
    /// start a checkpoint on a machine of any size.
    /// </summary>
    public static EngineSystem OursWith(StoreOptions options) =>
        new(KvCluster, directory => new KvClusterEngine(directory, options, 4 * options.CheckpointScratchBytes));

    /// <summary>Ours, called through the public interface of the library.</summary>
    public static EngineSystem Embedded { get; } = new(KvStore, directory => new KvStoreEngine(directory));

    /// <summary>Ours and the peers that are there; of the others it tells which package has them.</summary>
    public static IReadOnlyList<EngineSystem> Installed(Action<string> progress)
    {
        var systems = new List<EngineSystem> { Ours };
        if (LmdbEngine.IsInstalled)
            systems.Add(new(Lmdb, directory => new LmdbEngine(directory)));
        else
            progress("SKIPPED lmdb: liblmdb.so.0 is not there (Debian: liblmdb0)");
        if (Peers.RocksDb.IsInstalled)
            systems.Add(new(RocksDb, directory => new RocksDbEngine(directory)));
        else
            progress("SKIPPED rocksdb: librocksdb.so is not there (Debian: librocksdb7.8)");
        return systems;
    }
}
