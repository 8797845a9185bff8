using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Cli.Files;

/// <summary>
/// Writes records in batches of one shard each, several at once. Knows at any time up to which line everything is acknowledged. A batch whose outcome is
/// unknown is written again, which is harmless because it consists of the same puts. Two records with the same key keep their order, because a key is not
/// sent again before its last write is acknowledged.
/// </summary>
/// <remarks>One thread adds; answers arrive on others. The first failure that a retry does not help is kept and thrown to the adder.</remarks>
internal sealed class BatchLoader(KvClient client, long firstLine, TimeSpan giveUpAfter) : IDisposable
{
    // Enough to fill a journal record of the leader, and far below the limits of one write.
    private const int BatchRecordsMax = 1000;
    private const int BatchBytesMax = 128 << 10;
    private const int BatchesOpenMax = 16;
    private static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    private readonly Lock _lock = new();
    private readonly SemaphoreSlim _slots = new(BatchesOpenMax);
    private readonly CancellationTokenSource _stop = new();
    private readonly Dictionary<uint, LoadBatch> _filling = [];
    private readonly SortedSet<long> _openFirstLines = [];
    private readonly HashSet<int> _keysInProgress = [];
    private readonly long _started = Stopwatch.GetTimestamp();
    private long _lineAdded = firstLine - 1;
    private long _acknowledged;
    private int _batchesInProgress;
    private long _lastAcknowledgement = Stopwatch.GetTimestamp();
    private TimeSpan _longestPause;
    private Exception? _failure;

    /// <summary>Records acknowledged so far.</summary>
    public long Acknowledged => Interlocked.Read(ref _acknowledged);

    /// <summary>Adds a record. Waits while too many batches are in progress.</summary>
    public async ValueTask AddAsync(TsvRecord record, CancellationToken cancellation)
    {
        ThrowIfFailed();
        // Without a map all records are taken to be of one shard. The write then fails and says why.
        var shard = await client.FindShardAsync(record.Key, cancellation) ?? 0;
        if (IsInProgress(record.Key))
            await DrainAsync(cancellation);
        if (!_filling.TryGetValue(shard, out var batch))
            _filling.Add(shard, batch = Begin(shard, record.Line));
        batch.Add(record);
        _lineAdded = record.Line;
        if (batch.Records.Count < BatchRecordsMax && batch.Bytes < BatchBytesMax)
            return;
        _filling.Remove(shard);
        await SendAsync(batch, cancellation);
    }

    /// <summary>Sends the batches that are not full yet, and waits until everything added is acknowledged.</summary>
    public async Task DrainAsync(CancellationToken cancellation)
    {
        foreach (var batch in _filling.Values)
            await SendAsync(batch, cancellation);
        _filling.Clear();
        await SettleAsync(cancellation);
        ThrowIfFailed();
    }

    /// <summary>Stops retries and abandons the batches in progress. Their outcome stays unknown.</summary>
    public void Abandon() => _stop.Cancel();

    /// <summary>Waits until no batch is in progress, so that <see cref="Report"/> is final.</summary>
    public async Task SettleAsync(CancellationToken cancellation)
    {
        for (var taken = 0; taken < BatchesOpenMax; taken++)
            await _slots.WaitAsync(cancellation);
        _slots.Release(BatchesOpenMax);
    }

    public LoadReport Report(string? error)
    {
        var seconds = Stopwatch.GetElapsedTime(_started).TotalSeconds;
        lock (_lock)
        {
            var line = _openFirstLines.Count == 0 ? _lineAdded : _openFirstLines.Min - 1;
            // Abandoned batches count as in progress, so that the pause that ended the load is included.
            var lastPause = _batchesInProgress > 0 ? Stopwatch.GetElapsedTime(_lastAcknowledgement) : TimeSpan.Zero;
            var pause = lastPause > _longestPause ? lastPause : _longestPause;
            return new LoadReport(_acknowledged, Math.Round(seconds, 3), Math.Round(_acknowledged / seconds), line, Math.Round(pause.TotalSeconds, 3), error);
        }
    }

    public void Dispose()
    {
        _stop.Cancel();
        _stop.Dispose();
    }

    private LoadBatch Begin(uint shard, long line)
    {
        lock (_lock)
            _openFirstLines.Add(line);
        return new LoadBatch(shard, line);
    }

    private async Task SendAsync(LoadBatch batch, CancellationToken cancellation)
    {
        await _slots.WaitAsync(cancellation);
        lock (_lock)
        {
            // Nothing was in progress until now, so the time since the last acknowledgement is not a pause.
            if (_batchesInProgress++ == 0)
                _lastAcknowledgement = Stopwatch.GetTimestamp();
            foreach (var record in batch.Records)
                _keysInProgress.Add(HashOf(record.Key));
        }

        _ = WriteUntilAcknowledgedAsync(batch);
    }

    // Never throws. A failure is kept for the adder before the slot is released, so whoever waits for slots sees it.
    private async Task WriteUntilAcknowledgedAsync(LoadBatch batch)
    {
        try
        {
            await WriteAsync(batch.Records);
            Acknowledge(batch);
        }
        catch (Exception e)
        {
            Interlocked.CompareExchange(ref _failure, e, null);
        }
        finally
        {
            _slots.Release();
        }
    }

    private async Task WriteAsync(IReadOnlyList<TsvRecord> records)
    {
        while (true)
        {
            try
            {
                await client.WriteAsync(ToWrite(records), _stop.Token);
                return;
            }
            catch (KvException e) when (e.Reason == "SHARDS_DIFFER" && records.Count > 1)
            {
                // The map changed since the batch was begun. Halving it by key order leads to batches of one shard.
                var ordered = records.OrderBy(record => record.Key, KeyOrder).ToArray();
                await WriteAsync(ordered[..(ordered.Length / 2)]);
                await WriteAsync(ordered[(ordered.Length / 2)..]);
                return;
            }
            catch (KvException e) when (e is KvUnavailableException or KvOutcomeUnknownException && SinceLastAcknowledgement() < giveUpAfter)
            {
                await Task.Delay(RetryDelay, _stop.Token);
            }
        }
    }

    private void Acknowledge(LoadBatch batch)
    {
        lock (_lock)
        {
            _batchesInProgress--;
            _acknowledged += batch.Records.Count;
            _openFirstLines.Remove(batch.FirstLine);
            foreach (var record in batch.Records)
                _keysInProgress.Remove(HashOf(record.Key));
            var now = Stopwatch.GetTimestamp();
            var pause = Stopwatch.GetElapsedTime(_lastAcknowledgement, now);
            if (pause > _longestPause)
                _longestPause = pause;
            _lastAcknowledgement = now;
        }
    }

    private TimeSpan SinceLastAcknowledgement()
    {
        lock (_lock)
            return Stopwatch.GetElapsedTime(_lastAcknowledgement);
    }

    private bool IsInProgress(ReadOnlyMemory<byte> key)
    {
        lock (_lock)
            return _keysInProgress.Contains(HashOf(key));
    }

    private void ThrowIfFailed()
    {
        if (Volatile.Read(ref _failure) is { } failure)
            System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw(failure);
    }

    // Equal hashes of different keys only cost a wait.
    private static int HashOf(ReadOnlyMemory<byte> key)
    {
        var hash = new HashCode();
        hash.AddBytes(key.Span);
        return hash.ToHashCode();
    }

    private static readonly Comparer<ReadOnlyMemory<byte>> KeyOrder = Comparer<ReadOnlyMemory<byte>>.Create(static (a, b) => a.Span.SequenceCompareTo(b.Span));

    private static KvWrite ToWrite(IReadOnlyList<TsvRecord> records)
    {
        var write = new KvWrite();
        foreach (var record in records)
            write.Put(record.Key, record.Value);
        return write;
    }
}

/// <summary>Records of one shard that are written together, all or nothing.</summary>
internal sealed class LoadBatch(uint shard, long firstLine)
{
    public List<TsvRecord> Records { get; } = [];

    public uint Shard { get; } = shard;

    /// <summary>Everything before this line that is not in an older open batch is acknowledged.</summary>
    public long FirstLine { get; } = firstLine;

    /// <summary>Size of keys and values.</summary>
    public long Bytes { get; private set; }

    public void Add(TsvRecord record)
    {
        Records.Add(record);
        Bytes += record.Key.Length + record.Value.Length;
    }
}

/// <summary>The result of a load, successful or not.</summary>
/// <param name="Records">Acknowledged in this run.</param>
/// <param name="AcknowledgedLine">All lines up to this one are acknowledged. To continue, start at the next.</param>
/// <param name="LongestPauseSeconds">The longest time without an acknowledgement while records were waiting for one.</param>
/// <param name="Error">Why it ended early; null if it did not.</param>
internal sealed record LoadReport(long Records, double Seconds, double RecordsPerSecond, long AcknowledgedLine, double LongestPauseSeconds, string? Error);
