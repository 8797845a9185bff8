using System.Runtime.CompilerServices;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>
/// A client whose cluster is in memory, for tests of programs that take an <see cref="IKvClient"/>. It has the semantics of the cluster, and the same tests
/// hold both to them: conditions, etags, atomic writes and transactions, lives of keys, sessions that own keys, sets, snapshots of scans and pages, watches
/// with tokens, and the reasons of refusals. Whatever is to see the same data gets the same client. Thread-safe.
/// </summary>
/// <remarks>
/// What a cluster is and memory is not is missing. No call waits or fails, except as the request deserves; every read mode returns the newest state; what was
/// stored is gone with the client. A test that is about failovers and timeouts uses a real cluster, such as that of KvCluster.TestCluster.
/// </remarks>
public sealed class InMemoryKvClient : IKvClient, IAsyncDisposable, IDisposable
{
    private readonly InMemoryStore _store;
    private readonly PageSnapshots _pages;

    /// <summary>A client without keys.</summary>
    /// <param name="options">Its clock and its shards; null: the system's clock and one shard.</param>
    /// <exception cref="ArgumentException">The options are invalid.</exception>
    public InMemoryKvClient(InMemoryKvOptions? options = null)
    {
        _store = new InMemoryStore(options ?? new InMemoryKvOptions());
        _pages = new PageSnapshots(_store);
        (Sets, Sessions) = (new InMemorySets(_store), new InMemorySessions(_store));
    }

    /// <inheritdoc/>
    public IKvSets Sets { get; }

    /// <inheritdoc/>
    public IKvSessions Sessions { get; }

    /// <inheritdoc/>
    public ValueTask<GetResult> GetAsync(KvKey key, KvGetOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            RequestChecks.Key(key);
            var view = _store.Read(_store.IndexOf(key));
            return ResultOf(view, view.State.Find(key), options, isKeyTold: false);
        },
        cancellationToken);

    /// <inheritdoc/>
    public ValueTask<GetResult> GetNearestAsync(
        KvKey key, KvNearest nearest, KvKey within = default, KvGetOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => GetNearest(key, nearest, within, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<IReadOnlyList<GetResult>> GetManyAsync(
        IReadOnlyList<KvKey> keys, KvGetOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => GetMany(keys, options), cancellationToken);

    /// <summary>Does nothing: every read has everything that any client has seen.</summary>
    /// <param name="position">Of an answer.</param>
    public void Observe(ShardPosition position)
    {
    }

    /// <inheritdoc/>
    public ValueTask<PutResult> PutAsync(KvKey key, KvValue value, KvPutOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(
            () => Put(key, value, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<KvTryResult<PutResult>> TryPutAsync(KvKey key, KvValue value, KvPutOptions options, CancellationToken cancellationToken = default) =>
        TryAsync(key, options, () => Put(key, value, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<DeleteResult> DeleteAsync(KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => Delete(key, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<KvTryResult<DeleteResult>> TryDeleteAsync(KvKey key, KvChangeOptions options, CancellationToken cancellationToken = default) =>
        TryAsync(key, options, () => Delete(key, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<DeleteRangeResult> DeleteRangeAsync(KvRange range, KvCallOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => DeleteRange(range), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<IncrementResult> IncrementAsync(
        KvKey key, long by = 1, KvChangeOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => Increment(key, by, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<KvTryResult<IncrementResult>> TryIncrementAsync(
        KvKey key, long by, KvChangeOptions options, CancellationToken cancellationToken = default) =>
        TryAsync(key, options, () => Increment(key, by, options), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<TouchResult> TouchAsync(
        KvKey key, TimeSpan? timeToLive, KvChangeOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
            () =>
            {
                var applied = _store.Apply(ShardRequest.OfKey(key, options?.Condition, operations => operations.Touch(key, timeToLive)));
                return new TouchResult(applied.Results[0].Existed == true, applied.Position);
            },
            cancellationToken);

    /// <inheritdoc/>
    public ValueTask<TransactResult> TransactAsync(
        KvTransaction transaction, KvCallOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            ArgumentNullException.ThrowIfNull(transaction);
            var message = transaction.Message;
            var applied = _store.Apply(new ShardRequest(message.Conditions, message.Success, message.Failure, WithResults: true));
            return new TransactResult(applied.FailedCondition is null, applied.FailedCondition, applied.Results, applied.Position);
        },
        cancellationToken);

    /// <inheritdoc/>
    public ValueTask<WriteResult> WriteAsync(KvWrite write, KvCallOptions? options = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(() => Write(write), cancellationToken);

    /// <inheritdoc/>
    public ValueTask<KvTryResult<WriteResult>> TryWriteAsync(
        KvWrite write, KvCallOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            ArgumentNullException.ThrowIfNull(write);
            return Try(default, write.Message.Conditions, write.ReturnsPresentValue, () => Write(write));
        },
        cancellationToken);

    /// <inheritdoc/>
    public IAsyncEnumerable<KvEntry> ScanAsync(KvScan scan, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(scan);
        _store.ThrowIfClosed();
        return EntriesAsync(scan, cancellationToken);
    }

    /// <inheritdoc/>
    public IAsyncEnumerable<KvWatchMessage> WatchAsync(KvWatch watch, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(watch);
        _store.ThrowIfClosed();
        return MessagesAsync(watch, cancellationToken);
    }

    /// <inheritdoc/>
    public ValueTask<KvPage> ListAsync(KvList list, string? pageToken = null, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync(
            () =>
            {
                ArgumentNullException.ThrowIfNull(list);
                return _pages.Read(list, pageToken);
            },
            cancellationToken);

    /// <inheritdoc/>
    public Task<long> CountAsync(KvKey prefix, KvReadOptions? options = null, CancellationToken cancellationToken = default) =>
        CountRangeAsync(new KvRange { Prefix = prefix }, options, cancellationToken);

    /// <inheritdoc/>
    public Task<long> CountRangeAsync(
        KvRange range, KvReadOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            ArgumentNullException.ThrowIfNull(range);
            var bounds = RequestChecks.Range(range.Start, range.End, range.Prefix);
            _store.ThrowIfClosed();
            return _store.IndexesOf(bounds).Sum(shard => (long)_store.Read(shard).State.CountWithin(bounds));
        },
        cancellationToken).AsTask();

    /// <inheritdoc/>
    public IKvBulkLoad BulkLoad(TimeSpan? giveUpAfter = null) => new InMemoryBulkLoad(_store);

    /// <inheritdoc/>
    public ValueTask<uint?> FindShardAsync(KvKey key, CancellationToken cancellationToken = default) =>
        InMemoryStore.AnswerAsync<uint?>(() => _store.Read(_store.IndexOf(key)).Position.Shard, cancellationToken);

    /// <inheritdoc/>
    public ValueTask<TimeSpan> PingAsync(CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            _store.ThrowIfClosed();
            return TimeSpan.Zero;
        },
        cancellationToken);

    /// <summary>Closes the client. Its watches end, and later calls fail, with an <see cref="ObjectDisposedException"/>.</summary>
    public void Dispose() => _store.Dispose();

    /// <inheritdoc cref="Dispose"/>
    public ValueTask DisposeAsync()
    {
        Dispose();
        return ValueTask.CompletedTask;
    }

    private PutResult Put(KvKey key, KvValue value, KvPutOptions? options)
    {
        // A put in a list has no options of a call.
        var terms = options is null ? null : options with { Condition = null, WithPresentValue = false, Timeout = null, NoRetry = false };
        var applied = _store.Apply(ShardRequest.OfKey(key, options?.Condition, operations => operations.Put(key, value, terms)));
        return new PutResult(applied.Results[0].Entries is [var numbered] ? numbered.Key : key, applied.Position);
    }

    private DeleteResult Delete(KvKey key, KvChangeOptions? options)
    {
        var applied = _store.Apply(ShardRequest.OfKey(key, options?.Condition, operations => operations.Delete(key)));
        return new DeleteResult(applied.Results[0].Existed == true, applied.Position);
    }

    private IncrementResult Increment(KvKey key, long by, KvChangeOptions? options)
    {
        var applied = _store.Apply(ShardRequest.OfKey(key, options?.Condition, operations => operations.Increment(key, by)));
        return new IncrementResult(applied.Results[0].Number ?? 0, applied.Position);
    }

    private WriteResult Write(KvWrite write)
    {
        ArgumentNullException.ThrowIfNull(write);
        var message = write.Message;
        if (message.Operations.Count == 0)
            throw Refusals.BadRequest("The request has no operation.");
        var applied = _store.Apply(new ShardRequest(message.Conditions, message.Operations, null, message.WithResults));
        return new WriteResult(applied.Position, applied.KeysDeleted, message.WithResults ? applied.Results : []);
    }

    private ValueTask<KvTryResult<T>> TryAsync<T>(KvKey key, KvChangeOptions options, Func<T> change, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(options);
        V1.Condition[] conditions = options.Condition is { } condition ? [condition.Message] : [];
        return InMemoryStore.AnswerAsync(() => Try(key, conditions, options.WithPresentValue, change), cancellationToken);
    }

    private KvTryResult<T> Try<T>(KvKey key, IReadOnlyList<V1.Condition> conditions, bool withValue, Func<T> change)
    {
        try
        {
            return new KvTryResult<T>(change());
        }
        catch (KvConditionFailedException failure)
        {
            return new KvTryResult<T>(PresentOf(conditions[failure.ConditionIndex], key, withValue, failure));
        }
    }

    // What the key of a condition has that did not hold.
    private KvFailedCondition PresentOf(V1.Condition condition, KvKey key, bool withValue, KvConditionFailedException failure)
    {
        if (condition.TestCase is V1.Condition.TestOneofCase.Range or V1.Condition.TestOneofCase.SetHas or V1.Condition.TestOneofCase.SetLacks)
            return new KvFailedCondition(failure.ConditionIndex, condition.Key.Memory, Found: false, default, default, failure.Position);
        var of = condition.Key.IsEmpty ? key : new KvKey(condition.Key.Memory);
        var view = _store.Read(_store.IndexOf(of));
        return view.State.Find(of) is { } found
            ? new KvFailedCondition(failure.ConditionIndex, of, Found: true, found.Etag, withValue ? found.Value : default, view.Position)
            : new KvFailedCondition(failure.ConditionIndex, of, Found: false, default, default, view.Position);
    }

    private static GetResult ResultOf(ShardView view, StoredKey? found, KvGetOptions? options, bool isKeyTold)
    {
        var age = options?.Read == KvReadMode.Stale ? TimeSpan.Zero : (TimeSpan?)null;
        return found is null
            ? new GetResult(false, default, default, view.Position) { Age = age }
            : new GetResult(true, found.Value, found.Etag, view.Position)
            {
                Age = age,
                Key = isKeyTold ? found.Key : default,
                Life = found.LifeAt(options is { WithLife: true } ? view.Now : null),
            };
    }

    private GetResult GetNearest(KvKey key, KvNearest nearest, KvKey within, KvGetOptions? options)
    {
        RequestChecks.Key(key);
        var prefix = RequestChecks.Range(default, default, within);
        var isUpwards = nearest is KvNearest.Ceiling or KvNearest.Higher;
        var bounds = nearest switch
        {
            KvNearest.Exact => new KeyBounds(key, (byte[])[.. key.Span, 0]),
            KvNearest.Floor => new KeyBounds(default, (byte[])[.. key.Span, 0]),
            KvNearest.Lower => new KeyBounds(default, key),
            KvNearest.Ceiling => new KeyBounds(key, default),
            KvNearest.Higher => new KeyBounds((byte[])[.. key.Span, 0], default),
            _ => throw Refusals.BadRequest("The request asks for a nearest key in a way that this version does not know."),
        };
        bounds = bounds.From(prefix.Lower, reverse: false).From(prefix.Upper, reverse: true);
        var first = _store.Read(_store.IndexOf(key));
        foreach (var shard in _store.IndexesOf(bounds, reverse: !isUpwards))
        {
            var view = _store.Read(shard);
            if (view.State.Within(bounds, reverse: !isUpwards).FirstOrDefault() is { } found)
                return ResultOf(view, found, options, isKeyTold: true);
        }
        return ResultOf(first, null, options, isKeyTold: true);
    }

    private IReadOnlyList<GetResult> GetMany(IReadOnlyList<KvKey> keys, KvGetOptions? options)
    {
        ArgumentNullException.ThrowIfNull(keys);
        foreach (var key in keys)
            RequestChecks.Key(key);
        var shards = keys.Select(_store.IndexOf).ToList();
        if (shards.CountBy(static shard => shard).Any(static shard => shard.Value > KvLimits.KeysMax))
            throw Refusals.TooManyOperations(KvLimits.KeysMax);
        var views = _store.ReadAll();
        List<GetResult> results = [.. keys.Select((key, index) =>
            ResultOf(views[shards[index]], views[shards[index]].State.Find(key), options, isKeyTold: false))];
        if (results.Sum(static result => (long)result.Value.Length) > KvLimits.AnswerBytesMax)
            throw Refusals.ResultsTooLarge(KvLimits.AnswerBytesMax);
        return results;
    }

    // In each shard by a change of its own.
    private DeleteRangeResult DeleteRange(KvRange range)
    {
        ArgumentNullException.ThrowIfNull(range);
        var bounds = RequestChecks.Range(range.Start, range.End, range.Prefix);
        if (range is { Start.IsEmpty: true, End.IsEmpty: true, Prefix.IsEmpty: true, All: false })
            throw Refusals.BadRequest("A range without start, end and prefix has all keys, and it does not say that all are meant. Nothing was removed.");
        if (bounds.IsEmpty)
            return new DeleteRangeResult(0, _store.Read(_store.IndexOf(bounds.Lower)).Position);
        var (deleted, position) = (0ul, default(ShardPosition));
        foreach (var index in _store.IndexesOf(bounds))
        {
            var shard = _store.Read(index).Shard;
            var start = shard.Start.CompareTo(bounds.Lower) > 0 ? shard.Start : new KvKey(bounds.Lower);
            var isBeyond = bounds.GoesOnBeyond(shard.End.Span, reverse: false);
            var end = isBeyond ? shard.End : new KvKey(bounds.Upper);
            var applied = _store.Apply(ShardRequest.OfKey(start, null, operations => operations.DeleteRange(start, end)));
            (deleted, position) = (deleted + (ulong)applied.KeysDeleted, applied.Position);
        }
        return new DeleteRangeResult(deleted, position);
    }

    private async IAsyncEnumerable<KvEntry> EntriesAsync(KvScan scan, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var bounds = RequestChecks.Range(scan.Start, scan.End, scan.Prefix);
        var (entriesLeft, bytesLeft) = (scan.Limit == 0 ? ulong.MaxValue : scan.Limit, scan.BytesMax == 0 ? ulong.MaxValue : scan.BytesMax);
        var isFirst = true;
        foreach (var shard in _store.IndexesOf(bounds, scan.Reverse))
        {
            // A snapshot for each shard, opened when the scan comes to it.
            var view = await InMemoryStore.AnswerAsync(() => _store.Read(shard), cancellationToken).ConfigureAwait(false);
            foreach (var key in view.State.Within(bounds, scan.Reverse))
            {
                cancellationToken.ThrowIfCancellationRequested();
                _store.ThrowIfClosed();
                var bytes = (ulong)(key.Key.Length + (scan.KeysOnly ? 0 : key.Value.Length));
                if (entriesLeft == 0 || (bytes > bytesLeft && !isFirst))
                    yield break;
                (entriesLeft, bytesLeft, isFirst) = (entriesLeft - 1, bytes > bytesLeft ? 0 : bytesLeft - bytes, false);
                yield return key.ToEntry(scan.KeysOnly, scan.WithLife ? _store.Now : null);
            }
        }
    }

    private async IAsyncEnumerable<KvWatchMessage> MessagesAsync(KvWatch watch, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var (watched, events) = (new Watch(watch), new FittedEvents(watch));
        while (true)
        {
            cancellationToken.ThrowIfCancellationRequested();
            var (messages, changed) = _store.Read(watched);
            if (messages.Count == 0 && !await HasChangedAsync(changed, cancellationToken).ConfigureAwait(false))
                messages = watched.Bookmarks();
            foreach (var message in messages)
            {
                cancellationToken.ThrowIfCancellationRequested();
                _store.ThrowIfClosed();
                yield return message with { Events = events.Fit(message.Events) };
            }
        }
    }

    // False if nothing happened for so long that the reader is told.
    private async Task<bool> HasChangedAsync(Task changed, CancellationToken cancellationToken)
    {
        await changed.WaitAsync(TimeSpan.FromSeconds(1), _store.Time, cancellationToken).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        cancellationToken.ThrowIfCancellationRequested();
        return changed.IsCompleted;
    }
}
