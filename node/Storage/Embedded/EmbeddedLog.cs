using Microsoft.Extensions.Logging;

namespace KvCluster.Storage;

/// <summary>Log messages of a <see cref="KvStore"/> besides those of its engine: one line per decision.</summary>
internal static partial class EmbeddedLog
{
    [LoggerMessage(Level = LogLevel.Information, Message = "As measured on the disk of '{Directory}', new journal segments are {Filled}, large records are "
        + "{Compressed}, and up to {Writes} journal writes are in flight")]
    public static partial void JournalOptions(ILogger log, string directory, string filled, string compressed, int writes);
}
