namespace KvCluster.Storage.DataFile;

/// <summary>As many snapshots are open as may be; nothing is wrong with the store.</summary>
internal sealed class SnapshotLimitException(int snapshotsMax) : Exception($"{snapshotsMax} snapshots are open, which is the limit.");
