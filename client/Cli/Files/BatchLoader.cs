using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Cli.Files;

/// <summary>
/// Writes records in batches, each of one shard, several under way at once. Knows at any time up to which line everything is
/// acknowledged. A batch whose outcome is unknown is written again: the same puts, so repeating them is harmless. Two
/// records with the same key keep their order: a key is not sent again before its last write is acknowledged.
/// </summary>
/// <remarks>One thread adds; answers come on others. The first failure that repeating does not mend is kept and thrown to the adder.</remarks>
internal sealed class BatchLoader(KvClient client, long firstLine, TimeSpan giveUpAfter) : IDisposable
{
    // Enough to fill a journal record of the leader; far below the limits of one write.
    private const int BatchRecordsMax = 1000;
    private const int BatchBytesMax = 128 << 10;
    private const int BatchesOpenMax = 16;
    private static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    private readonly Lock _lock = new();
    private readonly SemaphoreSlim _slots = new(BatchesOpenMax);
    private readonly CancellationTokenSource _stop = new();
    private readonly Dictionary<uint, LoadBatch> _filling = [];
    private readonly SortedSet<long> _openFirstLines = [];
    private readonly HashSet<int> _keysUnderWay = [];
    private readonly long _started = Stopwatch.GetTimestamp();
    private long _lineAdded = firstLine - 1;
    private long _acknowledged;
    private int _batchesUnderWay;
    private long _lastAcknowledgement = Stopwatch.GetTimestamp();
    private TimeSpan _longestPause;
    private Exception? _failure;

    /// <summary>Records acknowledged so far.</summary>
    public long Acknowledged => Interlocked.Read(ref _acknowledged);

    /// <summary>Adds a record; waits while too many batches are under way.</summary>
    public async ValueTask AddAsync(TsvRecord record, CancellationToken cancellation)
    {
        ThrowIfFailed();
        // Without a map all records are of one shard as far as anybody knows; the write then fails and tells why.
        var shard = await client.FindShardAsync(record.Key, cancellation) ?? 0;
        if (IsUnderWay(record.Key))
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

    /// <summary>Sends what is still filling and waits until everything added is acknowledged.</summary>
    public async Task DrainAsync(CancellationToken cancellation)
    {
        foreach (var batch in _filling.Values)
            await SendAsync(batch, cancellation);
        _filling.Clear();
        await SettleAsync(cancellation);
        ThrowIfFailed();
    }

    /// <summary>No batch is repeated any more, and what is still under way is left at that: its outcome stays unknown.</summary>
    public void Abandon() => _stop.Cancel();

    /// <summary>Waits until nothing is under way any more, so that <see cref="Report"/> is final.</summary>
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
            // Batches that were given up count as under way: the pause that ended the load is one too.
            var lastPause = _batchesUnderWay > 0 ? Stopwatch.GetElapsedTime(_lastAcknowledgement) : TimeSpan.Zero;
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
            // Nothing was owed until now: the time since the last acknowledgement is no pause.
            if (_batchesUnderWay++ == 0)
                _lastAcknowledgement = Stopwatch.GetTimestamp();
            foreach (var record in batch.Records)
                _keysUnderWay.Add(HashOf(record.Key));
        }

        _ = WriteUntilAcknowledgedAsync(batch);
    }

    // Never throws: a failure is kept for the adder. The slot is given back only afterwards, so who waits for slots sees it.
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
            catch (KvInvalidRequestException e) when (e.Reason == "SHARDS_DIFFER" && records.Count > 1)
            {
                // The map changed since the batch was begun: halves by key order belong together sooner or later.
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
            _batchesUnderWay--;
            _acknowledged += batch.Records.Count;
            _openFirstLines.Remove(batch.FirstLine);
            foreach (var record in batch.Records)
                _keysUnderWay.Remove(HashOf(record.Key));
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

    private bool IsUnderWay(ReadOnlyMemory<byte> key)
    {
        lock (_lock)
            return _keysUnderWay.Contains(HashOf(key));
    }

    private void ThrowIfFailed()
    {
        if (Volatile.Read(ref _failure) is { } failure)
            System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw(failure);
    }

    // Equal hashes of different keys cost a wait, nothing else.
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
