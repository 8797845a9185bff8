namespace KvCluster.Storage.Encoding;

/// <summary>
/// What lies on the disk, or came as a record, is not what was written: the shard's replica stops and says which bytes are bad.
/// Nothing is repaired or skipped by itself.
/// </summary>
internal class CorruptStoreException : Exception
{
    /// <summary>Names the file, the offset and what was expected.</summary>
    public CorruptStoreException(string message, Exception? inner = null)
        : base(message, inner)
    {
    }
}
