namespace KvCluster.Storage.Encoding;

/// <summary>
/// The content of the disk, or of a received record, is not what was written. The shard's replica stops and reports which bytes are damaged. Nothing is
/// repaired or skipped automatically.
/// </summary>
internal class CorruptStoreException : Exception
{
    /// <summary>The message names the file, the offset and what was expected.</summary>
    public CorruptStoreException(string message, Exception? inner = null)
        : base(message, inner)
    {
    }
}

/// <summary>The files have a format version that this build does not read. Nothing was changed.</summary>
internal sealed class FormatVersionException(string path, uint found, uint supported)
    : Exception($"'{path}' has format version {found}, which this build cannot read; its own is {supported}.");
