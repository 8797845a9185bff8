namespace KvCluster.Disk;

/// <summary>What a crash of the <see cref="SimulatedDisk"/> makes of writes and directory entries that were not synced.</summary>
internal enum UnsyncedWrites
{
    /// <summary>All are lost.</summary>
    Dropped,

    /// <summary>All arrive.</summary>
    Kept,

    /// <summary>Each write arrives or not, whatever its place in the order, and so does each change of a directory.</summary>
    Reordered,

    /// <summary>As <see cref="Reordered"/>, and of a write that arrives only some sectors may.</summary>
    Torn,
}
