using System.Runtime.ExceptionServices;
using KvCluster.Client.Loading;
using KvCluster.Client.Routing;
using KvCluster.Client.Transport;

namespace KvCluster.Client;

/// <summary>
/// Loads many keys: entries are gathered into batches of one shard each, and several batches are under way. Made by <see cref="KvClient.BulkLoad"/>. Input in
/// key order is written fastest. Of a key that is added twice the last value counts, because a key is not sent again before its last write is acknowledged. A
/// batch whose answer was lost is sent again under the same identity, so that it is applied once and never over what another client has written since.
/// Without
/// <see cref="KvClientOptions.ExactlyOnce"/> the load fails then.
/// </summary>
/// <remarks>
/// One thread adds; the properties may be read by any. The first failure that repeating does not help is thrown by the next call, a batch of unknown outcome as
/// <see cref="KvOutcomeUnknownException"/>. However a load ends, <see cref="AcknowledgedThrough"/> says where it can be continued.
/// </remarks>
public sealed class KvBulkLoad : IKvBulkLoad
{
    // Enough to fill a journal record of the leader, and far below the limits of one write.
    private const int BatchEntriesMax = 1_000;
    private const int BatchBytesMax = 128 << 10;
    private const int BatchesOpenMax = 16;

    // A batch that is not full after so many entries is sent as it is. Otherwise a few entries of a shard that gets no more would hold back
    // AcknowledgedThrough to the end of the load, and batches of very many shards would take memory without a bound.
    private const int EntriesBehindMax = 64 * BatchEntriesMax;
    private static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    private readonly ClientCalls _calls;
    private readonly TimeSpan _giveUpAfter;
    private readonly BatchesUnderWay _underWay;
    private readonly BatchSlots _slots;
    private readonly CancellationTokenSource _abandoned = new();
    private readonly Dictionary<ShardId, LoadBatch> _filling = [];
    private LoadBatch? _lastFilled;

    /// <summary>The map by which the batches that are being filled were chosen.</summary>
    private ShardMap? _mapOfFilling;
    private long _added;
    private Exception? _failure;

    // The last call was cancelled, or has thrown the load's failure. Its caller knows that not everything is written. Only the adder's thread uses this and
    // the next one.
    private bool _isCutShort;
    private bool _hasEnded;

    internal KvBulkLoad(ClientCalls calls, TimeSpan giveUpAfter)
    {
        (_calls, _giveUpAfter) = (calls, giveUpAfter);
        _underWay = new BatchesUnderWay(calls.Router);
        _slots = new BatchSlots(calls.Router.Runtime, BatchesOpenMax);
    }

    /// <summary>Entries that are durable on a majority.</summary>
    public long Acknowledged => _underWay.Acknowledged;

    /// <summary>All of the first entries up to this number are durable on a majority. To continue a load that has failed, add those after them.</summary>
    public long AcknowledgedThrough
    {
        get
        {
            // Read first, because a batch that is begun afterwards has none of these.
            var added = Volatile.Read(ref _added);
            return Math.Min(added, (_underWay.FirstOpen ?? long.MaxValue) - 1);
        }
    }

    /// <summary>The longest time without an acknowledgement while one was waited for.</summary>
    public TimeSpan LongestPause => _underWay.LongestPause;

    /// <summary>Adds an entry. Waits while too many batches are under way. The memory may be used again when it has ended.</summary>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="value">Up to 8 MiB.</param>
    /// <param name="cancellationToken">Stops waiting. The entry is then added or not.</param>
    /// <exception cref="KvInvalidRequestException">The key or the value is beyond its limits. The entry is not added, and the load can go on.</exception>
    /// <exception cref="KvException">The load has failed.</exception>
    public ValueTask AddAsync(KvKey key, KvValue value, CancellationToken cancellationToken = default)
    {
        ThrowIfEnded();
        ThrowIfFailed();
        _isCutShort = false;
        if (key.Length is 0 or > KvLimits.KeyBytesMax)
            throw new KvInvalidRequestException(
                key.IsEmpty ? KvReasons.KeyEmpty : KvReasons.KeyTooLong,
                $"A key has 1 to {KvLimits.KeyBytesMax:N0} bytes, and this one {key.Length:N0}. The entry was not added.");
        if (value.Length > KvLimits.ValueBytesMax)
            throw new KvInvalidRequestException(
                KvReasons.ValueTooLarge, $"A value has at most {KvLimits.ValueBytesMax:N0} bytes, and this one {value.Length:N0}. The entry was not added.");
        return !_calls.Router.Table.IsKnown || HasMapChanged || _underWay.MayHave(key.Span)
            ? AddLaterAsync(key, value, cancellationToken)
            : AddNowAsync(key, value, cancellationToken);
    }

    /// <summary>Sends the batches that are not full yet, and waits until everything added is acknowledged.</summary>
    /// <exception cref="KvException">The load has failed.</exception>
    public async Task FlushAsync(CancellationToken cancellationToken = default)
    {
        ThrowIfEnded();
        _isCutShort = true;
        for (ThrowIfFailed(); _filling.Count > 0; ThrowIfFailed())
            await SendAsync(_filling.Values.First(), cancellationToken).ConfigureAwait(false);
        await _slots.WaitForAllAsync(cancellationToken).ConfigureAwait(false);
        ThrowIfFailed();
        _isCutShort = false;
    }

    /// <summary>
    /// Ends the load without what was not sent yet, and waits for the batches under way, so that what the properties say is final. Nothing can be added
    /// afterwards.
    /// </summary>
    /// <param name="cancellationToken">Stops waiting: what was not answered by then is not repeated any more, and its outcome stays unknown.</param>
    public async Task StopAsync(CancellationToken cancellationToken = default)
    {
        _hasEnded = true;
        try
        {
            await _slots.WaitForAllAsync(cancellationToken).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            await AbandonAsync().ConfigureAwait(false);
        }
    }

    /// <summary>
    /// Sends what was added and waits until it is acknowledged, as <see cref="FlushAsync"/> does, and ends the load. If the last call was cancelled or has
    /// thrown the load's failure, nothing more is sent, and the outcome of the batches under way stays unknown.
    /// </summary>
    /// <exception cref="KvException">The load has failed, and no call has said so before.</exception>
    public async ValueTask DisposeAsync()
    {
        try
        {
            if (!_hasEnded && !_isCutShort)
                await FlushAsync().ConfigureAwait(false);
        }
        finally
        {
            _hasEnded = true;
            await AbandonAsync().ConfigureAwait(false);
        }
    }

    private async Task AbandonAsync()
    {
        await _abandoned.CancelAsync().ConfigureAwait(false);
        await _slots.WaitForAllAsync(CancellationToken.None).ConfigureAwait(false);
    }

    // Without a map all keys are taken to be of one shard. The write then fails and says why.
    private async ValueTask AddLaterAsync(KvKey key, KvValue value, CancellationToken cancellationToken)
    {
        _isCutShort = true;
        await _calls.Router.WaitForMapAsync(_calls.Router.DeadlineFromNow(), cancellationToken).ConfigureAwait(false);
        if (_underWay.MayHave(key.Span) || HasMapChanged)
            await FlushAsync(cancellationToken).ConfigureAwait(false);
        _isCutShort = false;
        await AddNowAsync(key, value, cancellationToken).ConfigureAwait(false);
    }

    private ValueTask AddNowAsync(KvKey key, KvValue value, CancellationToken cancellationToken)
    {
        var batch = Add(key.Span, value.Span);
        return IsFull(batch) || IsTimeToLook ? SendDueAsync(batch, cancellationToken) : default;
    }

    // Batches were begun by another map. A key may be in one of them that would now go into another one, and its older value could be written last.
    private bool HasMapChanged => _filling.Count > 0 && _mapOfFilling != _calls.Router.Table.Map;

    private LoadBatch Add(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        if (_filling.Count == 0)
            _mapOfFilling = _calls.Router.Table.Map;
        var shard = _calls.Router.Table.ShardOf(key);
        var batch = _lastFilled;
        if (batch is null || batch.Shard != shard)
        {
            if (!_filling.TryGetValue(shard, out batch))
                _filling.Add(shard, batch = _underWay.Begin(shard, _added + 1));
            _lastFilled = batch;
        }
        batch.Puts.Add(key, value);
        Volatile.Write(ref _added, _added + 1);
        return batch;
    }

    private static bool IsFull(LoadBatch batch) => batch.Puts.Count >= BatchEntriesMax || batch.Puts.Bytes >= BatchBytesMax;

    private bool IsTimeToLook => _added % BatchEntriesMax == 0;

    private async ValueTask SendDueAsync(LoadBatch batch, CancellationToken cancellationToken)
    {
        _isCutShort = true;
        if (IsFull(batch))
            await SendAsync(batch, cancellationToken).ConfigureAwait(false);
        if (IsTimeToLook)
        {
            foreach (var old in _filling.Values.Where(filling => filling.First <= _added - EntriesBehindMax).ToList())
                await SendAsync(old, cancellationToken).ConfigureAwait(false);
        }
        _isCutShort = false;
    }

    // A wait that is cancelled leaves the batch with those that are filled, so that a later call sends it.
    private async ValueTask SendAsync(LoadBatch batch, CancellationToken cancellationToken)
    {
        await _slots.TakeAsync(cancellationToken).ConfigureAwait(false);
        _filling.Remove(batch.Shard);
        _lastFilled = null;
        _underWay.Sent(batch);
        _ = WriteUntilAcknowledgedAsync(batch);
    }

    // Never throws. A failure is kept for the adder before the slot is released, so that whoever waits for slots sees it.
    private async Task WriteUntilAcknowledgedAsync(LoadBatch batch)
    {
        try
        {
            await WriteAsync(batch.Puts).ConfigureAwait(false);
            _underWay.AcknowledgedOf(batch);
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

    private async Task WriteAsync(PutBatch puts)
    {
        foreach (var part in await WriteOrDivideAsync(puts).ConfigureAwait(false))
            await WriteAsync(part).ConfigureAwait(false);
    }

    // Returns nothing if the batch was written, and otherwise its parts, because the map has changed since it was begun.
    private async Task<IReadOnlyList<PutBatch>> WriteOrDivideAsync(PutBatch puts)
    {
        using var write = new BatchWrite(_calls.Router, _calls.Sessions, puts);
        while (await SendAsync(write).ConfigureAwait(false) is { } failure)
        {
            // What may have been applied as a whole must not be written again in parts, which have other identities.
            var isOfSeveral = CallStatus.ReasonOf(failure) == CallStatus.ShardsDiffer && !write.MayBeApplied;
            if (IsGivenUp || !(write.MayRepeat || isOfSeveral))
                throw _calls.ToException(failure);
            if (isOfSeveral && puts.Divide(_calls.Router.Table) is { Count: > 1 } parts)
                return parts;
            await _calls.Router.Runtime.DelayAsync(RetryDelay, _abandoned.Token).ConfigureAwait(false);
        }
        _calls.See(write.Position);
        return [];
    }

    private async ValueTask<Google.Rpc.Status?> SendAsync(BatchWrite write)
    {
        try
        {
            return await write.SendAsync(_abandoned.Token).ConfigureAwait(false);
        }
        catch (ObjectDisposedException) when (write.MayBeApplied)
        {
            throw _calls.ToException(CallStatus.OutcomeUnknown("The client was disposed of before the answer to a part of the load came."));
        }
    }

    private bool IsGivenUp => _underWay.SinceLastAcknowledgement >= _giveUpAfter;

    private void ThrowIfEnded() => ObjectDisposedException.ThrowIf(_hasEnded, this);

    private void ThrowIfFailed()
    {
        if (Volatile.Read(ref _failure) is not { } failure)
            return;
        _isCutShort = true;
        ExceptionDispatchInfo.Throw(failure);
    }
}
