using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Inspection;

/// <summary>Something that <see cref="StoreCheck"/> found.</summary>
/// <param name="IsDamage">Whether something is lost or the engine does not open the directory. Otherwise it is only worth knowing.</param>
/// <param name="File">The file or directory.</param>
/// <param name="Offset">Where in the file, in bytes; null if it concerns all of it.</param>
/// <param name="What">What is wrong.</param>
/// <param name="Lost">What is lost as a result, or that nothing is.</param>
internal sealed record Finding(bool IsDamage, string File, long? Offset, string What, string Lost)
{
    /// <summary>Damage that an exception of the engine describes, which names the file itself.</summary>
    public static Finding Of(CorruptStoreException fault, string file, long? offset, string lost)
    {
        var text = fault.Message.TrimEnd('.');
        return new Finding(IsDamage: true, file, offset, text.StartsWith($"'{file}': ", StringComparison.Ordinal) ? text[(file.Length + 4)..] : text, lost);
    }
}

/// <summary>The result of <see cref="StoreCheck"/>.</summary>
/// <param name="Directory">The replica's directory.</param>
/// <param name="ReplicaId">The replica; 0 if nothing tells.</param>
/// <param name="Shard">Its shard.</param>
/// <param name="Row">The row of <c>RecoveryDecisions</c> by which the engine would decide.</param>
/// <param name="Findings">What was found.</param>
/// <param name="Keys">The keys that were read, by tree.</param>
/// <param name="DamagedTrees">Trees of which something cannot be read.</param>
/// <param name="PagesRead">Pages of the data file that were read, those of large values included.</param>
/// <param name="RecordsRead">Records of the journal that were read.</param>
internal sealed record CheckReport(
    string Directory, ReplicaId ReplicaId, ShardId Shard, RecoveryRow Row, IReadOnlyList<Finding> Findings, IReadOnlyDictionary<TreeId, ulong> Keys,
    IReadOnlySet<TreeId> DamagedTrees, long PagesRead, long RecordsRead)
{
    /// <summary>Whether anything is damaged.</summary>
    public bool IsDamaged => Findings.Any(static finding => finding.IsDamage);
}
