namespace KvCluster.Cli.Files;

/// <summary>The result of a load, successful or not.</summary>
/// <param name="Records">Acknowledged in this run.</param>
/// <param name="AcknowledgedLine">All lines up to this one are acknowledged. To continue, start at the next.</param>
/// <param name="LongestPauseSeconds">The longest time without an acknowledgement while records were waiting for one.</param>
/// <param name="Error">Why it ended early; null if it did not.</param>
internal sealed record LoadReport(long Records, double Seconds, double RecordsPerSecond, long AcknowledgedLine, double LongestPauseSeconds, string? Error);
