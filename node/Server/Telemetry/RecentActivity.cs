using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>What a node's status tells of its callers and of what its replicas decided. Any thread.</summary>
internal sealed class RecentActivity(TimeProvider clock)
{
    /// <summary>Enough for a failover of several shards.</summary>
    private const int DecisionsMax = 128;

    /// <summary>Who looks asks each second.</summary>
    private const long WatchedMs = 60_000;

    private readonly CallDurations _reads = new();
    private readonly CallDurations _writes = new();
    private readonly Lock _gate = new();
    private readonly Queue<ShardDecision> _decisions = new(DecisionsMax);
    private long _refused;
    private long _unwatchedAtMs;

    /// <summary>Which keys callers name.</summary>
    public HotPrefixes Hot { get; } = new(clock);

    /// <summary>Somebody has asked of late, so calls are measured.</summary>
    public bool IsWatched => Environment.TickCount64 < Volatile.Read(ref _unwatchedAtMs);

    public void Answered(bool isRead, TimeSpan took) => (isRead ? _reads : _writes).Add(took);

    public void Refused() => Interlocked.Increment(ref _refused);

    /// <summary>A replica decided something; the oldest decision makes room.</summary>
    public void Decided(uint shard, Decision decision)
    {
        var told = new ShardDecision { Shard = shard, Decision = decision };
        lock (_gate)
        {
            if (_decisions.Count == DecisionsMax)
                _decisions.Dequeue();
            _decisions.Enqueue(told);
        }
    }

    /// <summary>The status. Calls are measured for a minute from here on.</summary>
    public NodeActivity Tell()
    {
        Volatile.Write(ref _unwatchedAtMs, Environment.TickCount64 + WatchedMs);
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
