namespace KvCluster.Cli.Files;

/// <summary>How a load ended, well or badly.</summary>
/// <param name="Records">Acknowledged in this run.</param>
/// <param name="AcknowledgedLine">All lines up to this one are acknowledged; a load that goes on begins at the next.</param>
/// <param name="LongestPauseSeconds">The longest time without an acknowledgement while records were waiting for one.</param>
/// <param name="Error">Why it ended early.</param>
internal sealed record LoadReport(long Records, double Seconds, double RecordsPerSecond, long AcknowledgedLine, double LongestPauseSeconds, string? Error);
