using Microsoft.Extensions.Logging;

namespace KvCluster.Storage;

/// <summary>What a store says of itself while it works: one line a decision.</summary>
internal static partial class StoreLog
{
    [LoggerMessage(Level = LogLevel.Warning, Message = "Journal kept for followers is damaged and is not used any more: {Damage}")]
    public static partial void CoveredJournalDamaged(ILogger log, string damage);

    [LoggerMessage(Level = LogLevel.Warning, Message = "A record that is cut off is damaged and is not kept aside: {Damage}")]
    public static partial void CutRecordDamaged(ILogger log, string damage);
}
