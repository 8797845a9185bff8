namespace KvCluster.Storage;

/// <summary>What kind of record a body is. The bits are those of the format (FORMAT.md, "Body"); an unknown bit stops the replica.</summary>
[Flags]
internal enum RecordFlags : ushort
{
    /// <summary>Operations of callers.</summary>
    None = 0,

    /// <summary>The first record of an epoch; without operations.</summary>
    EpochOpen = 1,

    /// <summary>Only results of identified requests; without operations on keys.</summary>
    ResultOnly = 2,

    /// <summary>Tells replicas something about the shard (digest wanted, for example); without operations on keys.</summary>
    Control = 4,

    /// <summary>The payload is LZ4-compressed. Has its place in the format; not written and not read by this version.</summary>
    Lz4 = 0x100,
}
