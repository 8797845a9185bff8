namespace KvCluster.Disk;

/// <summary>What goes wrong with one call to the <see cref="SimulatedDisk"/> while its machine runs on.</summary>
internal enum DiskFault
{
    /// <summary>Nothing.</summary>
    None,

    /// <summary>It fails with an input/output error, and nothing is done. Any call.</summary>
    Error,

    /// <summary>Some first sectors arrive, by the size of the write half of them, and then it fails. A write; another call fails as by <see cref="Error"/>.</summary>
    ShortWrite,

    /// <summary>It says that it succeeded, and nothing reached the disk. A write; no other call is changed by it.</summary>
    LostWrite,

    /// <summary>It says that it succeeded, and the bytes lie elsewhere in the same file, or nowhere where that has no other place. A write; no other call is changed by it.</summary>
    MisdirectedWrite,

    /// <summary>
    /// It fails, and the system takes what was not synced for written: it is read back until the machine stops, later syncs succeed, and it is lost
    /// when the power goes. A sync, and a write that syncs its data and goes through the page cache; another call fails as by <see cref="Error"/>.
    /// </summary>
    SyncLosesData,

    /// <summary>Some first sectors arrive, as by <see cref="ShortWrite"/>, and then there is no room, as where bytes in place need new blocks. A write; another call does nothing and says the same.</summary>
    NoRoom,
}
