using KvCluster.V1;

namespace KvCluster.Node.Shards;

/// <summary>
/// A replica's last decisions for <c>kv status --shard</c>: the lines of its log, kept while the process lives, even if the replica has
/// failed. Added on the writer executor, read on any thread.
/// </summary>
internal sealed class RecentDecisions
{
    /// <summary>An election writes about ten lines, so the last few elections are complete.</summary>
    private const int LinesMax = 64;

    private readonly Lock _lock = new();
    private readonly Queue<Decision> _lines = new(LinesMax);

    /// <summary>Adds a line and removes the oldest if necessary.</summary>
    /// <returns>The line. Not modified afterwards.</returns>
    public Decision Add(DateTimeOffset time, string text, bool alarm)
    {
        var line = new Decision { UnixUs = (time - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond, Text = text, Alarm = alarm };
        lock (_lock)
        {
            if (_lines.Count == LinesMax)
                _lines.Dequeue();
            _lines.Enqueue(line);
        }
        return line;
    }

    /// <summary>All lines, oldest first.</summary>
    public Decision[] ToArray()
    {
        lock (_lock)
            return [.. _lines];
    }
}
