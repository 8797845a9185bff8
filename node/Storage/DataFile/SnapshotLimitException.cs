namespace KvCluster.Storage.DataFile;

/// <summary>The limit of open snapshots is reached. The store is fine.</summary>
internal sealed class SnapshotLimitException(int snapshotsMax) : Exception($"{snapshotsMax} snapshots are open, which is the limit.");
