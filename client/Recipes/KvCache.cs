using System.Collections.Immutable;
using System.Runtime.ExceptionServices;

namespace KvCluster.Client;

/// <summary>
/// The entries with a prefix, kept in memory and kept up to date by a watch. Reads are made from memory and see the past, by milliseconds usually. Thread-safe.
/// </summary>
/// <remarks>
/// What is guaranteed: a view has, of each shard, all changes up to a position and none after it, those of one atomic change together; the next view is never
/// older; and nothing is left out, whatever happens to leaders and connections.
/// What happens in failures, also in <c>client/RECIPES.md</c>:
/// a process that pauses, or loses the cluster, goes on with the view that it had, and how old that may be is <see cref="Silence"/>;
/// the answer to a change of one's own is lost: whoever gets its position waits for it with <see cref="WaitForAsync"/>;
/// a key ends: it goes from the next view, whether it was deleted, has expired, or was owned by a session.
/// A decision that must not be made on old data is made by a condition on the etag of an entry, and the cache saves only the read before it.
/// </remarks>
public sealed class KvCache : IAsyncDisposable
{
    private static readonly KvCacheOptions Default = new();
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(1);

    private readonly IKvClient _client;
    private readonly KvWatch _watch;
    private readonly long _bytesMax;
    private readonly TimeProvider _time;
    private readonly CancellationTokenSource _ended = new();
    private readonly Lock _lock = new();
    private readonly Task _following;
    private long _heardAt;

    // Under the lock. The view may be read without it.
    private volatile KvCacheView _view = KvCacheView.Nothing;
    private TaskCompletionSource _changed = NewSignal();
    private Exception? _failure;

    /// <summary>Begins to read the entries, and then follows their changes until it is disposed.</summary>
    /// <param name="client">Makes the calls. It must live longer than the cache.</param>
    /// <param name="prefix">The prefix; empty means all keys.</param>
    /// <param name="options">What is kept.</param>
    public KvCache(IKvClient client, KvKey prefix, KvCacheOptions? options = null)
        : this(client, prefix, options ?? Default, TimeProvider.System)
    {
    }

    internal KvCache(IKvClient client, KvKey prefix, KvCacheOptions options, TimeProvider time)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentOutOfRangeException.ThrowIfNegativeOrZero(options.BytesMax);
        (_client, _bytesMax, _time, _heardAt) = (client, options.BytesMax, time, time.GetTimestamp());
        _watch = new KvWatch { Prefix = prefix, Initial = true, ExpandRanges = true, KeysOnly = options.KeysOnly };
        _following = Task.Run(FollowAsync);
    }

    /// <summary>The newest view. It is not complete until the entries have been read the first time.</summary>
    public KvCacheView View => _view;

    /// <summary>
    /// For how long nothing was heard of the cluster. Each shard tells something once a second, and a connection that is silent for three is opened again, so
    /// more than some seconds mean that the view may be old.
    /// </summary>
    public TimeSpan Silence => _time.GetElapsedTime(Volatile.Read(ref _heardAt));

    /// <summary>Waits until the view is complete.</summary>
    /// <exception cref="ObjectDisposedException">The cache was disposed, or its client.</exception>
    /// <exception cref="KvException">
    /// The cache has ended: with the reason CACHE_FULL because of <see cref="KvCacheOptions.BytesMax"/>, or because the watch was refused for what waiting does
    /// not change, such as credentials or an endpoint that is none.
    /// </exception>
    public ValueTask<KvCacheView> WhenCompleteAsync(CancellationToken cancellationToken = default) =>
        WaitAsync(static view => view.IsComplete, cancellationToken);

    /// <summary>Waits until the view has what a call of this or another client has seen or done.</summary>
    /// <param name="position">The position of the call's answer, in a shard that the prefix has a part of.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="ArgumentException">The prefix has no part of the shard, so the cache would never have the position.</exception>
    /// <exception cref="KvLineageChangedException">The position is of another history of the cluster than the view.</exception>
    /// <exception cref="ObjectDisposedException">The cache was disposed, or its client.</exception>
    /// <exception cref="KvException">
    /// The cache has ended: with the reason CACHE_FULL because of <see cref="KvCacheOptions.BytesMax"/>, or because the watch was refused for what waiting does
    /// not change, such as credentials or an endpoint that is none.
    /// </exception>
    public ValueTask<KvCacheView> WaitForAsync(ShardPosition position, CancellationToken cancellationToken = default) =>
        WaitAsync(view => view.IsComplete && HasReached(view, position), cancellationToken);

    /// <summary>Waits until the entries are others than in a view.</summary>
    /// <param name="seen">The view.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The newest view. Views between the two are left out.</returns>
    /// <exception cref="ObjectDisposedException">The cache was disposed, or its client.</exception>
    /// <exception cref="KvException">
    /// The cache has ended: with the reason CACHE_FULL because of <see cref="KvCacheOptions.BytesMax"/>, or because the watch was refused for what waiting does
    /// not change, such as credentials or an endpoint that is none.
    /// </exception>
    public ValueTask<KvCacheView> NextAsync(KvCacheView seen, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(seen);
        return WaitAsync(view => view.Revision != seen.Revision, cancellationToken);
    }

    /// <summary>Ends the watch. The last view stays.</summary>
    public async ValueTask DisposeAsync()
    {
        await _ended.CancelAsync().ConfigureAwait(false);
        await _following.ConfigureAwait(false);
        End(new ObjectDisposedException(typeof(KvCache).FullName));
    }

    private static TaskCompletionSource NewSignal() => new(TaskCreationOptions.RunContinuationsAsynchronously);

    private static bool HasReached(KvCacheView view, ShardPosition position)
    {
        if (view.PositionOf(position.Shard) is not { } reached)
            throw new ArgumentException($"The prefix of the cache has no part of shard {position.Shard}, so it never has this position.", nameof(position));
        return IsOfOneHistory(reached, position) ? reached.Etag >= position.Etag : throw new KvLineageChangedException(
            "The position is of another history of the cluster than what the cache has. Read the key, or wait until the cache has the present history.",
            ChangeOutcome.NotApplied);
    }

    private static bool IsOfOneHistory(ShardPosition one, ShardPosition other) => one.Lineage == other.Lineage || one.Lineage == 0 || other.Lineage == 0;

    private async ValueTask<KvCacheView> WaitAsync(Func<KvCacheView, bool> isReached, CancellationToken cancellationToken)
    {
        while (true)
        {
            Task changed;
            lock (_lock)
            {
                if (_failure is not null)
                    ExceptionDispatchInfo.Throw(_failure);
                changed = _changed.Task;
            }
            if (View is var view && isReached(view))
                return view;
            await changed.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
    }

    // The one loop. It ends when the cache is disposed, or cannot go on.
    private async Task FollowAsync()
    {
        try
        {
            while (true)
            {
                await FollowOnceAsync().ConfigureAwait(false);
                await Task.Delay(Pause, _time, _ended.Token).ConfigureAwait(false);
            }
        }
        catch (OperationCanceledException) when (_ended.IsCancellationRequested)
        {
            // Whoever disposes it waits for this.
        }
        catch (Exception failure)
        {
            // Kept for everybody who waits.
            End(failure);
        }
    }

    // One watch, from the entries on, until it breaks. The view stays until the entries are complete, and no older than it is.
    private async Task FollowOnceAsync()
    {
        var entries = ImmutableSortedDictionary.CreateBuilder<KvKey, KvEntry>();
        var positions = ImmutableSortedDictionary<uint, ShardPosition>.Empty;
        var (isComplete, isCurrent, isChanged, bytes) = (false, false, true, 0L);
        try
        {
            await foreach (var message in _client.WatchAsync(_watch, _ended.Token).ConfigureAwait(false))
            {
                Volatile.Write(ref _heardAt, _time.GetTimestamp());
                bytes += Apply(entries, message);
                if (bytes > _bytesMax)
                    throw Full();
                isChanged |= message.Events.Count > 0;
                isComplete |= message.IsInitialComplete;
                if (message.Position != default || message.IsInitialComplete)
                    positions = positions.SetItem(message.Position.Shard, message.Position);
                isCurrent = isCurrent || (isComplete && !positions.Values.Any(IsOlder));
                if (!isCurrent)
                    continue;
                Publish(new KvCacheView(isComplete: true, entries.ToImmutable(), positions, _view.Revision + (isChanged ? 1 : 0)));
                isChanged = false;
            }
        }
        catch (KvException failure) when (!failure.IsLasting() && failure.Reason != KvReasons.CacheFull)
        {
            // No replica for a minute, a journal that does not reach back, or another history. The entries are read again. What fails each time ends it.
        }
    }

    private KvException Full() => new(
        KvReasons.CacheFull, $"The entries with the prefix \"{_watch.Prefix}\" have more than {_bytesMax:N0} bytes, so the cache has ended. Raise "
        + $"{nameof(KvCacheOptions.BytesMax)}, keep keys only, or choose a longer prefix.");

    // A watch that begins anew may be served by a replica that is behind.
    private bool IsOlder(ShardPosition position) =>
        _view.PositionOf(position.Shard) is { } had && IsOfOneHistory(had, position) && position.Etag < had.Etag;

    /// <summary>Applies a message, and returns how many bytes more there are.</summary>
    private static long Apply(ImmutableSortedDictionary<KvKey, KvEntry>.Builder entries, KvWatchMessage message)
    {
        var bytes = 0L;
        if (message.Forget is { } range)
        {
            foreach (var key in entries.Keys.Where(key => range.Start.CompareTo(key) <= 0 && (range.End.IsEmpty || range.End.CompareTo(key) > 0)).ToList())
                bytes -= Remove(entries, key);
        }
        foreach (var happened in message.Events)
        {
            if (happened.Kind is KvEventKind.Put or KvEventKind.Delete)
                bytes -= Remove(entries, happened.Key);
            if (happened.Kind != KvEventKind.Put)
                continue;
            entries.Add(happened.Key, new KvEntry(happened.Key, happened.Value, happened.Etag));
            bytes += happened.Key.Length + happened.Value.Length;
        }
        return bytes;
    }

    private static long Remove(ImmutableSortedDictionary<KvKey, KvEntry>.Builder entries, KvKey key)
    {
        if (!entries.TryGetValue(key, out var entry))
            return 0;
        entries.Remove(key);
        return entry.Key.Length + entry.Value.Length;
    }

    private void Publish(KvCacheView view)
    {
        TaskCompletionSource changed;
        lock (_lock)
            (_view, changed, _changed) = (view, _changed, NewSignal());
        changed.SetResult();
    }

    private void End(Exception failure)
    {
        TaskCompletionSource changed;
        lock (_lock)
            (_failure, changed, _changed) = (_failure ?? failure, _changed, NewSignal());
        changed.SetResult();
    }
}
