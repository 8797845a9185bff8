namespace KvCluster.Storage.Context;

/// <summary>
/// Distributes the time for digests and scrubs among all shards of a node, so that together they take at most a quarter of a core and no more of a disk
/// than a checkpoint. After a step the caller pauses until its turn. Any thread.
/// </summary>
/// <param name="bytesPerSecond">The most that all of them together may read.</param>
internal sealed class DigestPace(long bytesPerSecond)
{
    private const int RestTimes = 3;
    private readonly Lock _lock = new();
    private long _freeFrom = long.MinValue;

    /// <summary>How long to wait before the next step, after a step that began at a timestamp of this clock and ends now.</summary>
    public TimeSpan RestAfter(TimeProvider time, long began, long bytes)
    {
        var now = time.GetTimestamp();
        var share = Math.Max((RestTimes + 1) * (now - began), bytes * time.TimestampFrequency / bytesPerSecond);
        lock (_lock)
        {
            _freeFrom = Math.Max(_freeFrom, began) + share;
            return time.GetElapsedTime(now, Math.Max(now, _freeFrom));
        }
    }
}
