namespace KvCluster.Storage.DataFile;

/// <summary>The bounds of a data file.</summary>
internal sealed record PageStoreOptions
{
    /// <summary>Address range reserved for the map at least, in bytes; twice the file if that is more at the open. Costs page tables only where the file is.</summary>
    public long MapBytes { get; init; } = 64L << 30;

    /// <summary>Snapshots that may be open at once: a multiple of the streams that a node serves.</summary>
    public int SnapshotsMax { get; init; } = 4096;

    /// <summary>
    /// What open snapshots may keep from being reused, in bytes of memory and of the file; beyond it the oldest is asked to end. As much as the changed pages that
    /// start a checkpoint: a long reader may double the memory, and no more.
    /// </summary>
    public long PinnedBytesMax { get; init; } = 256 << 20;

    /// <summary>
    /// Writes go past the page cache where the file system can. Not by default: every page would be cold after its checkpoint, and readers and the writer
    /// would wait for the disk at its first touch. With 10 million keys in a cluster of three that was a tenth of the reads a second.
    /// </summary>
    public bool Direct { get; init; }

    /// <summary>One write of a checkpoint, in bytes: long enough for a disk's full speed, short enough to let the journal in between.</summary>
    public int WriteBytes { get; init; } = 1 << 20;
}
