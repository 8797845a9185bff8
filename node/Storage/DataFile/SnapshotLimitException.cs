namespace KvCluster.Storage.DataFile;

/// <summary>The limit of open snapshots is reached. The store is fine.</summary>
internal sealed class SnapshotLimitException(int snapshotsMax)
    : Exception($"No snapshot was opened because the limit of {snapshotsMax} open snapshots is reached. Try again later.");
