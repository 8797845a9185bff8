using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>The part of a node's status about its callers and its replicas' decisions. Any thread.</summary>
internal sealed class RecentActivity(TimeProvider clock)
{
    /// <summary>Enough for a failover of several shards.</summary>
    private const int DecisionsMax = 128;

    /// <summary>How long calls are measured after a query. Whoever watches queries every second.</summary>
    private const long WatchedMs = 60_000;

    private readonly CallDurations _reads = new();
    private readonly CallDurations _writes = new();
    private readonly Lock _gate = new();
    private readonly Queue<ShardDecision> _decisions = new(DecisionsMax);
    private readonly long[] _readsTaken = new long[CallDurations.Counts];
    private readonly long[] _writesTaken = new long[CallDurations.Counts];
    private long _refused;
    private long _unwatchedAtMs;

    // All time until _unwatchedAtMs in which calls were or will be measured.
    private long _watchedMs;
    private long _takenAtMs = Environment.TickCount64;
    private long _takenWatchedMs;

    /// <summary>The prefixes of keys that callers use.</summary>
    public HotPrefixes Hot { get; } = new(clock);

    /// <summary>Whether somebody queried recently, so that calls are measured.</summary>
    public bool IsWatched => Environment.TickCount64 < Volatile.Read(ref _unwatchedAtMs);

    public void Answered(bool isRead, TimeSpan took) => (isRead ? _reads : _writes).Add(took);

    public void Refused() => Interlocked.Increment(ref _refused);

    /// <summary>A replica decided something. The oldest decision is removed if necessary.</summary>
    public void Decided(ShardId shard, Decision decision)
    {
        var told = new ShardDecision { ShardId = shard, Decision = decision };
        lock (_gate)
        {
            if (_decisions.Count == DecisionsMax)
                _decisions.Dequeue();
            _decisions.Enqueue(told);
        }
    }

    /// <summary>Measures calls for some time from now on.</summary>
    public void Measure(long milliseconds)
    {
        lock (_gate)
        {
            var now = Environment.TickCount64;
            var from = Math.Max(now, _unwatchedAtMs);
            if (now + milliseconds <= from)
                return;
            _watchedMs += now + milliseconds - from;
            Volatile.Write(ref _unwatchedAtMs, now + milliseconds);
        }
    }

    /// <summary>The calls measured since this was called last. One caller at a time.</summary>
    /// <param name="isAlwaysMeasured">Whether calls are measured all the time, because somebody listens to the metrics.</param>
    public MeasuredCalls Take(bool isAlwaysMeasured)
    {
        lock (_gate)
        {
            var now = Environment.TickCount64;
            var watched = _watchedMs - Math.Max(0, _unwatchedAtMs - now);
            var measured = isAlwaysMeasured ? now - _takenAtMs : watched - _takenWatchedMs;
            (_takenAtMs, _takenWatchedMs) = (now, watched);
            return new MeasuredCalls(measured * 1_000, _reads.Since(_readsTaken), _writes.Since(_writesTaken));
        }
    }

    /// <summary>The activity for the status. Calls are measured for a minute from here on.</summary>
    public NodeActivity Tell()
    {
        Measure(WatchedMs);
        var (prefixes, samples) = Hot.Read();
        var message = new NodeActivity
        {
            Reads = _reads.ToMessage(),
            Writes = _writes.ToMessage(),
            Refused = (ulong)Interlocked.Read(ref _refused),
            HotPrefixes = { prefixes },
            Samples = samples,
        };
        lock (_gate)
            message.Decisions.AddRange(_decisions);
        return message;
    }
}
