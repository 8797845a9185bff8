using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Cli.Files;

/// <summary>
/// Writes the records of a file. Of a key that is there twice the later one counts. Keys that do not expire are written in batches (<see cref="KvBulkLoad"/>),
/// which have no place for a time to live, and the others by a put each, some at a time. One caller; the numbers may be read by any thread.
/// </summary>
internal sealed class FileLoad : IAsyncDisposable
{
    private const int PutsOpenMax = 64;
    private const int KeysMax = 1_000_000;

    /// <summary>Where lines are put or left out, what is acknowledged is known only after a flush, which is made after so many lines.</summary>
    private const int LinesBetweenFlushes = 100_000;

    private static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    private readonly KvClient _client;
    private readonly TimeSpan _giveUpAfter;
    private readonly KvBulkLoad _batches;

    /// <summary>Hashes of keys in batches since the last flush. Equal hashes of different keys only cost a wait.</summary>
    private readonly HashSet<int> _inBatches = [];

    /// <summary>Puts that were begun, by the hashes of their keys.</summary>
    private readonly Dictionary<int, Task> _puts = [];

    private long _linesBefore;
    private long _lastLine;
    private long _flushedLine;

    /// <summary>The first line that is in no batch. From there on the number of records in batches does not tell the line.</summary>
    private long _firstLineBesideBatches = long.MaxValue;
    private long _putsAcknowledged;

    /// <param name="client">Makes the calls.</param>
    /// <param name="fromLine">The line at which the load begins.</param>
    /// <param name="giveUpAfter">It fails if nothing is acknowledged for so long.</param>
    public FileLoad(KvClient client, long fromLine, TimeSpan giveUpAfter)
    {
        (_client, _giveUpAfter, _linesBefore) = (client, giveUpAfter, fromLine - 1);
        _batches = client.BulkLoad(giveUpAfter);
    }

    /// <summary>Records that are durable on a majority.</summary>
    public long Acknowledged => _batches.Acknowledged + Volatile.Read(ref _putsAcknowledged);

    /// <summary>All lines from the first one of this load up to this one are acknowledged, and maybe some more.</summary>
    public long AcknowledgedLine => Math.Max(_flushedLine, Math.Min(_linesBefore + _batches.AcknowledgedThrough, _firstLineBesideBatches - 1));

    /// <summary>Records that were passed over.</summary>
    public long LeftOut { get; private set; }

    /// <summary>The longest time without the acknowledgement of a batch while one was waited for.</summary>
    public TimeSpan LongestPause => _batches.LongestPause;

    /// <summary>Adds the next record.</summary>
    /// <param name="mayHaveLives">Whether the file has records with a time left. Without them nothing has to be remembered of the others.</param>
    /// <exception cref="KvException">The load has failed.</exception>
    public async ValueTask AddAsync(FileRecord record, bool mayHaveLives, CancellationToken stop)
    {
        Begin(record);
        if (record.Left is { } left)
            await PutAsync(record, left, stop);
        else if (mayHaveLives)
            await AddRememberedAsync(record, stop);
        else
            await _batches.AddAsync(record.Key, record.Value, stop);
        _lastLine = record.Line;
        if (_firstLineBesideBatches != long.MaxValue && _lastLine - _flushedLine >= LinesBetweenFlushes)
            await FlushAsync(stop);
    }

    /// <summary>Passes over the next record. Its line counts as acknowledged when those before it are.</summary>
    public void LeaveOut(FileRecord record)
    {
        Begin(record);
        _firstLineBesideBatches = Math.Min(_firstLineBesideBatches, record.Line);
        _lastLine = record.Line;
        LeftOut++;
    }

    /// <summary>Waits until everything added is acknowledged.</summary>
    /// <exception cref="KvException">The load has failed.</exception>
    public async Task FlushAsync(CancellationToken stop)
    {
        await _batches.FlushAsync(stop);
        await WaitForPutsAsync(stop);
        _inBatches.Clear();
        _flushedLine = _lastLine;
    }

    /// <summary>Ends the load without what was not sent yet, and waits for what is under way, so that the numbers are final.</summary>
    /// <param name="limit">Stops waiting.</param>
    public async Task StopAsync(CancellationToken limit)
    {
        await _batches.StopAsync(limit);
        await Task.WhenAll(_puts.Values).WaitAsync(limit).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
    }

    public ValueTask DisposeAsync() => _batches.DisposeAsync();

    // The first line of an export is no record.
    private void Begin(FileRecord record)
    {
        if (_lastLine == 0)
            _linesBefore = record.Line - 1;
    }

    private async ValueTask AddRememberedAsync(FileRecord record, CancellationToken stop)
    {
        var hash = HashOf(record.Key.Span);
        if (_puts.ContainsKey(hash))
            await WaitForPutsAsync(stop);
        if (_inBatches.Count >= KeysMax)
            await FlushAsync(stop);
        _inBatches.Add(hash);
        await _batches.AddAsync(record.Key, record.Value, stop);
    }

    private async ValueTask PutAsync(FileRecord record, TimeSpan left, CancellationToken stop)
    {
        var hash = HashOf(record.Key.Span);
        if (_puts.Count >= PutsOpenMax || _puts.ContainsKey(hash))
            await WaitForPutsAsync(stop);
        if (_inBatches.Contains(hash))
            await FlushAsync(stop);
        _firstLineBesideBatches = Math.Min(_firstLineBesideBatches, record.Line);
        _puts.Add(hash, PutUntilAcknowledgedAsync(record, left, stop));
    }

    private async Task WaitForPutsAsync(CancellationToken stop)
    {
        await Task.WhenAll(_puts.Values).WaitAsync(stop);
        _puts.Clear();
    }

    // A put of unknown outcome is settled by the client, which sends it again under the same identity.
    private async Task PutUntilAcknowledgedAsync(FileRecord record, TimeSpan left, CancellationToken stop)
    {
        var options = new KvPutOptions { TimeToLive = left };
        for (var begun = Stopwatch.GetTimestamp(); !await TryPutAsync(record, options, begun, stop);)
            await Task.Delay(RetryDelay, stop);
        Interlocked.Increment(ref _putsAcknowledged);
    }

    private async Task<bool> TryPutAsync(FileRecord record, KvPutOptions options, long begun, CancellationToken stop)
    {
        try
        {
            await _client.PutAsync(record.Key, record.Value, options, stop);
            return true;
        }
        catch (KvUnavailableException) when (Stopwatch.GetElapsedTime(begun) < _giveUpAfter)
        {
            return false;
        }
    }

    private static int HashOf(ReadOnlySpan<byte> key)
    {
        var hash = new HashCode();
        hash.AddBytes(key);
        return hash.ToHashCode();
    }
}
