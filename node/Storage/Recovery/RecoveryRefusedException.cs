using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// Recovery found damage after which something durable is, or may be, missing. The store does not open, and nothing was changed. A replica with peers is
/// rebuilt from them under a new id; without peers an operator decides.
/// </summary>
internal sealed class RecoveryRefusedException(string directory, string row, string description, Exception? inner)
    : CorruptStoreException($"The store in '{directory}' was not opened, and nothing in it was changed ({row}): {description}.", inner)
{
    /// <summary>The row of the recovery table.</summary>
    public string Row { get; } = row;
}
