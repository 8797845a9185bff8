using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>
/// A load of an <see cref="InMemoryKvClient"/>. As in a cluster, entries are there when their batch is full or flushed, so a program that forgets the end of
/// its load finds out in its tests. One thread adds.
/// </summary>
internal sealed class InMemoryBulkLoad(InMemoryStore store) : IKvBulkLoad
{
    private const int BatchEntriesMax = 1_000;
    private const int BatchBytesMax = 128 << 10;

    private readonly List<(KvKey Key, KvValue Value)> _batch = [];
    private long _batchBytes;
    private long _acknowledged;
    private bool _hasEnded;

    public long Acknowledged => Interlocked.Read(ref _acknowledged);

    public long AcknowledgedThrough => Acknowledged;

    public TimeSpan LongestPause => TimeSpan.Zero;

    public ValueTask AddAsync(KvKey key, KvValue value, CancellationToken cancellationToken = default)
    {
        ObjectDisposedException.ThrowIf(_hasEnded, this);
        RequestChecks.Entry(key, value);
        if (cancellationToken.IsCancellationRequested)
            return ValueTask.FromCanceled(cancellationToken);
        store.ThrowIfClosed();
        _batch.Add((key.ToArray(), value.ToArray()));
        _batchBytes += key.Length + value.Length;
        if (_batch.Count >= BatchEntriesMax || _batchBytes >= BatchBytesMax)
            Send();
        return ValueTask.CompletedTask;
    }

    public Task FlushAsync(CancellationToken cancellationToken = default)
    {
        ObjectDisposedException.ThrowIf(_hasEnded, this);
        if (cancellationToken.IsCancellationRequested)
            return Task.FromCanceled(cancellationToken);
        Send();
        return Task.CompletedTask;
    }

    public Task StopAsync(CancellationToken cancellationToken = default)
    {
        _hasEnded = true;
        _batch.Clear();
        return Task.CompletedTask;
    }

    public ValueTask DisposeAsync()
    {
        if (!_hasEnded)
            Send();
        _hasEnded = true;
        return ValueTask.CompletedTask;
    }

    // One change in each shard. Of a key that was added twice the last value counts.
    private void Send()
    {
        foreach (var part in _batch.GroupBy(entry => store.IndexOf(entry.Key)))
        {
            var write = new KvWrite();
            foreach (var (key, value) in part)
                write.Put(key, value);
            store.Apply(new ShardRequest([], write.Message.Operations, null, WithResults: false));
        }
        Interlocked.Add(ref _acknowledged, _batch.Count);
        _batch.Clear();
        _batchBytes = 0;
    }
}
