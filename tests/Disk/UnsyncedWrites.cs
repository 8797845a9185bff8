namespace KvCluster.Disk;

/// <summary>The effect of a crash of the <see cref="SimulatedDisk"/> on unsynced writes and directory changes.</summary>
internal enum UnsyncedWrites
{
    /// <summary>All are lost.</summary>
    Dropped,

    /// <summary>All arrive.</summary>
    Kept,

    /// <summary>Each write, and each change of a directory, arrives or not, independently of the order.</summary>
    Reordered,

    /// <summary>As <see cref="Reordered"/>, and a write may arrive only in some of its sectors.</summary>
    Torn,
}
