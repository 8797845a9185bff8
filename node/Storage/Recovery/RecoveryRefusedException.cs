using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// Recovery found damage behind which something durable is, or may be, missing: the store does not open and nothing was changed. A replica
/// with peers is to be rebuilt from them under a new id; one without, an operator decides about.
/// </summary>
internal sealed class RecoveryRefusedException(string directory, string row, string description, Exception? inner)
    : CorruptStoreException($"The store in '{directory}' is not opened ({row}): {description}.", inner)
{
    /// <summary>The row of the recovery table.</summary>
    public string Row { get; } = row;
}
