using KvCluster.Client.Transport;

namespace KvCluster.Client.Loading;

/// <summary>
/// What a load has begun and what is acknowledged of it. The adder's thread begins and sends batches and asks for keys; acknowledgements come on any thread.
/// </summary>
internal sealed class BatchesUnderWay(CallRouter calls)
{
    /// <summary>What a batch takes at first. It grows, because batches of very many shards may be filled side by side.</summary>
    private const int BatchBytesMin = 16 << 10;

    private readonly Lock _lock = new();
    private readonly SortedSet<long> _openFirst = [];
    private readonly List<LoadBatch> _sent = [];

    // The greatest key ever sent. Input in key order never asks for a lesser one.
    private byte[] _greatest = [];
    private long _acknowledged;
    private long _lastMs = calls.Runtime.NowMs;
    private long _lastAwakeMs = calls.AwakeMs;
    private long _longestMs;

    /// <summary>Entries acknowledged.</summary>
    public long Acknowledged => Interlocked.Read(ref _acknowledged);

    /// <summary>The number of the first entry that is not acknowledged, or of one before it; null if there is none.</summary>
    public long? FirstOpen
    {
        get
        {
            lock (_lock)
                return _openFirst.Count == 0 ? null : _openFirst.Min;
        }
    }

    /// <summary>How long ago the last acknowledgement was, without the time in which the process stood still.</summary>
    public TimeSpan SinceLastAcknowledgement
    {
        get
        {
            lock (_lock)
                return TimeSpan.FromMilliseconds(calls.AwakeMs - _lastAwakeMs);
        }
    }

    /// <summary>The longest time without an acknowledgement while one was waited for.</summary>
    public TimeSpan LongestPause
    {
        get
        {
            // A batch that was given up stays among the sent ones, so that the pause which ended the load is included.
            lock (_lock)
                return TimeSpan.FromMilliseconds(_sent.Count == 0 ? _longestMs : Math.Max(_longestMs, calls.Runtime.NowMs - _lastMs));
        }
    }

    /// <summary>Begins a batch.</summary>
    /// <param name="shard">Of all its keys.</param>
    /// <param name="first">The number of its first entry.</param>
    public LoadBatch Begin(ShardId shard, long first)
    {
        lock (_lock)
            _openFirst.Add(first);
        // The memory of an earlier batch is not used again, because an attempt that was not answered may still be being sent.
        return new LoadBatch(new PutBatch(BatchBytesMin), shard, first);
    }

    /// <summary>A batch is sent now.</summary>
    public void Sent(LoadBatch batch)
    {
        batch.Seal();
        if (batch.Greatest.AsSpan().SequenceCompareTo(_greatest) > 0)
            _greatest = batch.Greatest;
        lock (_lock)
        {
            // Nothing was waited for until now, so the time since the last acknowledgement is no pause.
            if (_sent.Count == 0)
                (_lastMs, _lastAwakeMs) = (calls.Runtime.NowMs, calls.AwakeMs);
            _sent.Add(batch);
        }
    }

    /// <summary>Whether a key may be in a batch that was sent and is not acknowledged.</summary>
    public bool MayHave(ReadOnlySpan<byte> key)
    {
        if (key.SequenceCompareTo(_greatest) > 0)
            return false;
        lock (_lock)
        {
            foreach (var batch in _sent)
            {
                if (batch.MayHave(key))
                    return true;
            }
            return false;
        }
    }

    /// <summary>A batch is acknowledged.</summary>
    public void AcknowledgedOf(LoadBatch batch)
    {
        lock (_lock)
        {
            _acknowledged += batch.Puts.Count;
            _openFirst.Remove(batch.First);
            _sent.Remove(batch);
            var now = calls.Runtime.NowMs;
            _longestMs = Math.Max(_longestMs, now - _lastMs);
            (_lastMs, _lastAwakeMs) = (now, calls.AwakeMs);
        }
    }
}
