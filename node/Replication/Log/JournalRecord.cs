namespace KvCluster.Replication.Log;

/// <summary>
/// One record of the journal as the protocol sees it. Two journals that hold records of the same etag and checksum agree on
/// everything up to them, because each record names its predecessor by etag and checksum.
/// </summary>
/// <param name="Etag">(epoch, last change).</param>
/// <param name="Checksum">CRC-32C of the body.</param>
/// <param name="Previous">The predecessor's etag; <see cref="Etag.None"/> for the first record of a shard.</param>
/// <param name="PreviousChecksum">The predecessor's checksum.</param>
/// <param name="BodyBytes">Length of the body.</param>
internal readonly record struct JournalRecord(Etag Etag, uint Checksum, Etag Previous, uint PreviousChecksum, int BodyBytes)
{
    /// <summary>This record's log position.</summary>
    public LogPosition Name => new(Etag, Checksum);

    /// <summary>The log position of the record before it.</summary>
    public LogPosition PreviousName => new(Previous, PreviousChecksum);
}
