namespace KvCluster.Disk;

/// <summary>How a call to the <see cref="SimulatedDisk"/> fails while its machine keeps running.</summary>
internal enum DiskFault
{
    /// <summary>No fault.</summary>
    None,

    /// <summary>Any call fails with an input/output error and has no effect.</summary>
    Error,

    /// <summary>
    /// A write fails after the first half of its sectors has arrived. Another call fails as by
    /// <see cref="Error"/>.
    /// </summary>
    ShortWrite,

    /// <summary>A write succeeds, but nothing reaches the disk. Other calls are not affected.</summary>
    LostWrite,

    /// <summary>A write succeeds, but its bytes go to another place of the same file, or nowhere if it has none. Other calls are not affected.</summary>
    MisdirectedWrite,

    /// <summary>
    /// A sync, or a synchronous write through the page cache, fails, and the system takes the unsynced data for written. It is read back until the
    /// machine stops, and later syncs succeed, but it is lost with the power. Another call fails as by <see cref="Error"/>.
    /// </summary>
    SyncLosesData,

    /// <summary>
    /// A write fails for want of space after some first sectors have arrived, as where writes in place need new blocks. A file that was to grow keeps the
    /// first half. Another call has no effect and reports the same error, except that a hole is not made and nothing says so.
    /// </summary>
    NoRoom,

    /// <summary>A call that changes something does all of it and then fails for want of space, as on thin, quota-limited and copy-on-write disks.</summary>
    NoRoomAfterwards,

    /// <summary>A call that changes something does all of it and then fails with an input/output error.</summary>
    ErrorAfterwards,
}
