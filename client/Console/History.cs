using KvCluster.V1;

namespace KvCluster.AdminConsole;

/// <summary>The last fifteen minutes of every node as the page draws them: lists with one value for each sample, oldest first.</summary>
internal static class History
{
    /// <param name="reading">The status with the nodes' histories, and when it was read.</param>
    public static object Of((GetStatusResponse Status, DateTimeOffset At) reading) => new
    {
        UnixMs = reading.At.ToUnixTimeMilliseconds(),
        Nodes = reading.Status.Nodes.Where(node => node.History is not null).Select(node => ToDocument(node.Node, node.History)),
    };

    private static object ToDocument(uint node, NodeHistory history) => new
    {
        node,
        UnixMs = history.UnixUs.Select(static time => time / 1_000),
        ReadsPerSecond = Rates(history.Reads, history.MeasuredUs),
        WritesPerSecond = Rates(history.Writes, history.MeasuredUs),
        ReadP50Us = Durations(history.ReadP50Us, history.Reads),
        ReadP99Us = Durations(history.ReadP99Us, history.Reads),
        WriteP50Us = Durations(history.WriteP50Us, history.Writes),
        WriteP99Us = Durations(history.WriteP99Us, history.Writes),
        history.LagChanges,
        history.ChangedPagesBytes,
        history.ReaderPagesBytes,
        history.FreePagesBytes,
        history.JournalBytes,
        history.JournalIndexBytes,
        history.RequestsBytes,
        history.DiskUsedBytes,
        history.DiskFreeBytes,
        history.Checkpoints,
        history.CheckpointBytes,
    };

    // Null where nothing was measured: the line has a gap there.
    private static IEnumerable<double?> Rates(IEnumerable<ulong> calls, IEnumerable<ulong> measuredUs) =>
        calls.Zip(measuredUs, static (count, time) => time == 0 ? (double?)null : Math.Round(count * 1e6 / time, 1));

    private static IEnumerable<ulong?> Durations(IEnumerable<ulong> durationsUs, IEnumerable<ulong> calls) =>
        durationsUs.Zip(calls, static (duration, count) => count == 0 ? (ulong?)null : duration);
}
