namespace KvCluster.Storage;

/// <summary>
/// Recovery found damage behind which something durable may be missing: the store does not open and nothing was changed. The replica
/// is to be rebuilt from a peer, or an operator decides.
/// </summary>
internal sealed class RecoveryRefusedException(string directory, string row, string description, Exception? inner)
    : CorruptStoreException($"The store in '{directory}' is not opened ({row}): {description}.", inner)
{
    /// <summary>The row of the recovery table.</summary>
    public string Row { get; } = row;
}
