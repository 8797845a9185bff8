namespace KvCluster;

/// <summary>
/// The header and checksum of a record's body, which identify its place in the chain. Two journals that hold records of the same etag and checksum agree on
/// everything up to them, because each record names its predecessor by both.
/// </summary>
/// <param name="Etag">(epoch, last change): the record's own etag, greater than its predecessor's.</param>
/// <param name="Previous">The etag of the record it follows; 0 for a shard's first.</param>
/// <param name="Checksum">CRC-32C of the body; its last four bytes.</param>
/// <param name="PreviousChecksum">The checksum of the record it follows; 0 for a shard's first.</param>
/// <param name="BodyBytes">Length of the whole body.</param>
/// <param name="Flags">Its kind.</param>
internal readonly record struct RecordRef(
    Etag Etag, Etag Previous, uint Checksum, uint PreviousChecksum, int BodyBytes, RecordFlags Flags)
{
    /// <summary>The epoch in which the record was created.</summary>
    public ulong Epoch => Etag.Epoch;

    /// <summary>The record's last change.</summary>
    public ulong Change => Etag.Change;

    /// <summary>Whether this record directly follows <paramref name="predecessor"/>: by etag and checksum, and in order.</summary>
    public bool Follows(in RecordRef predecessor) =>
        Previous == predecessor.Etag && PreviousChecksum == predecessor.Checksum && Etag > predecessor.Etag;
}

/// <summary>The kind of a record. The bits are those of the format (FORMAT.md, "Body"); an unknown bit stops the replica.</summary>
[Flags]
internal enum RecordFlags : ushort
{
    /// <summary>Operations of callers.</summary>
    None = 0,

    /// <summary>The first record of an epoch; without operations.</summary>
    EpochOpen = 1,

    /// <summary>Only results of identified requests; without operations on keys.</summary>
    ResultOnly = 2,

    /// <summary>Tells replicas something about the shard, such as a request for a digest; without operations on keys.</summary>
    Control = 4,

    /// <summary>The payload is LZ4-compressed. It is decompressed by <c>RecordPayload</c>.</summary>
    Lz4 = 0x100,

    /// <summary>The payload is preceded by the record's shard time, which without this flag is the wall time.</summary>
    ShardTime = 0x200,
}
