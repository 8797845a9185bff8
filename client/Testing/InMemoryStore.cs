using System.Security.Cryptography;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>
/// The shards of a client in memory, behind one lock, and their time. What is due ends before each call, and by a timer for those who watch. Used by the client
/// and its parts; any thread. Calls of others never run under the lock.
/// </summary>
internal sealed class InMemoryStore : IDisposable
{
    /// <summary>Timers of the system take no longer times. One that comes too early is set again.</summary>
    private static readonly TimeSpan TimerMax = TimeSpan.FromDays(1);

    private readonly Lock _lock = new();
    private readonly TimeProvider _time;
    private readonly long _began;
    private readonly ITimer _timer;
    private readonly Shard[] _shards;
    private readonly ulong _lineage = BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1;
    private TaskCompletionSource _changed = NewSignal();
    private bool _isClosed;

    /// <exception cref="ArgumentException">The options are invalid.</exception>
    public InMemoryStore(InMemoryKvOptions options)
    {
        KvKey[] bounds = [.. options.ShardBounds.Order()];
        if (bounds.Any(static bound => bound.Length is 0 or > KvLimits.KeyBytesMax) || bounds.Distinct().Count() < bounds.Length)
            throw new ArgumentException("A bound between two shards is a key, and no other bound.", nameof(options));
        if (options.ChangesKept < 1)
            throw new ArgumentException($"{nameof(options.ChangesKept)} is {options.ChangesKept}; it must be at least 1.", nameof(options));
        _shards = [.. Enumerable.Range(0, bounds.Length + 1).Select(index => new Shard(
            (uint)index, index == 0 ? default : bounds[index - 1], index == bounds.Length ? default : bounds[index], options.ChangesKept, IndexOf))];
        _time = options.Time;
        _began = _time.GetTimestamp();
        _timer = _time.CreateTimer(static self => ((InMemoryStore)self!).EndDue(), this, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
    }

    /// <summary>The clock.</summary>
    public TimeProvider Time => _time;

    /// <summary>How long the store exists, by its clock.</summary>
    public TimeSpan Now => _time.GetElapsedTime(_began);

    /// <summary>Runs a call, as an asynchronous method does: what it throws is the failure of the task.</summary>
    public static ValueTask<T> AnswerAsync<T>(Func<T> call, CancellationToken cancellationToken)
    {
        if (cancellationToken.IsCancellationRequested)
            return ValueTask.FromCanceled<T>(cancellationToken);
        try
        {
            return ValueTask.FromResult(call());
        }
        catch (Exception failure)
        {
            return ValueTask.FromException<T>(failure);
        }
    }

    /// <exception cref="ObjectDisposedException">The client was disposed.</exception>
    public void ThrowIfClosed()
    {
        lock (_lock)
            ObjectDisposedException.ThrowIf(_isClosed, typeof(InMemoryKvClient));
    }

    /// <summary>The number of the shard that owns a key.</summary>
    public int IndexOf(KvKey key) => Array.FindLastIndex(_shards, shard => shard.Start.CompareTo(key) <= 0);

    /// <summary>The number of the shard with the last keys before a bound; that of the last shard if the bound is empty.</summary>
    public int IndexBefore(KvKey bound) =>
        bound.IsEmpty ? _shards.Length - 1 : Math.Max(0, Array.FindLastIndex(_shards, shard => shard.Start.CompareTo(bound) < 0));

    /// <summary>The numbers of the shards that have a part of a range, in the order of their keys.</summary>
    public IEnumerable<int> IndexesOf(KeyBounds bounds, bool reverse = false)
    {
        var indexes = Enumerable.Range(0, _shards.Length).Where(index => _shards[index].Meets(bounds));
        return reverse ? indexes.Reverse() : indexes;
    }

    /// <summary>A shard as it is now.</summary>
    /// <exception cref="ObjectDisposedException">The client was disposed.</exception>
    public ShardView Read(int shard)
    {
        lock (_lock)
        {
            var now = EnterLocked();
            return ViewLocked(_shards[shard], now);
        }
    }

    /// <summary>All shards as they are now.</summary>
    /// <exception cref="ObjectDisposedException">The client was disposed.</exception>
    public IReadOnlyList<ShardView> ReadAll()
    {
        lock (_lock)
        {
            var now = EnterLocked();
            return [.. _shards.Select(shard => ViewLocked(shard, now))];
        }
    }

    /// <summary>Applies a request in the shard of its first key.</summary>
    /// <exception cref="KvException">It is refused, and nothing is applied.</exception>
    /// <exception cref="ObjectDisposedException">The client was disposed.</exception>
    public Applied Apply(ShardRequest request)
    {
        if (request.First is not { } first)
            throw Refusals.BadRequest("The request names no key by which its shard is found. Nothing was applied.");
        return Change(IndexOf(first), (shard, now) => shard.Apply(request, now, _lineage));
    }

    /// <summary>Changes a shard.</summary>
    /// <exception cref="ObjectDisposedException">The client was disposed.</exception>
    public T Change<T>(int shard, Func<Shard, TimeSpan, T> change)
    {
        lock (_lock)
        {
            var now = EnterLocked();
            var before = _shards[shard].State.Etag;
            var result = change(_shards[shard], now);
            if (_shards[shard].State.Etag != before)
                SignalLocked();
            SetTimerLocked(now);
            return result;
        }
    }

    /// <summary>What a watch has not returned yet, and a task that completes with the next change.</summary>
    /// <exception cref="KvException">The watch cannot go on.</exception>
    /// <exception cref="ObjectDisposedException">The client was disposed.</exception>
    public (IReadOnlyList<KvWatchMessage> Messages, Task Changed) Read(Watch watch)
    {
        lock (_lock)
        {
            EnterLocked();
            return (watch.Read(_shards, _lineage), _changed.Task);
        }
    }

    /// <summary>Closes the store. Watches end.</summary>
    public void Dispose()
    {
        lock (_lock)
        {
            _isClosed = true;
            SignalLocked();
        }
        _timer.Dispose();
    }

    private ShardView ViewLocked(Shard shard, TimeSpan now)
    {
        Invariant.CheckHeld(_lock);
        return new ShardView(shard, shard.State, now, shard.PositionIn(_lineage));
    }

    // Ends what is due, and returns the time.
    private TimeSpan EnterLocked()
    {
        Invariant.CheckHeld(_lock);
        ObjectDisposedException.ThrowIf(_isClosed, typeof(InMemoryKvClient));
        var now = Now;
        var ended = false;
        foreach (var shard in _shards)
            ended |= shard.EndDue(now);
        if (ended)
        {
            SignalLocked();
            SetTimerLocked(now);
        }
        return now;
    }

    private void EndDue()
    {
        lock (_lock)
        {
            if (!_isClosed)
                SetTimerLocked(EnterLocked());
        }
    }

    private void SignalLocked()
    {
        Invariant.CheckHeld(_lock);
        var changed = _changed;
        _changed = NewSignal();
        changed.SetResult();
    }

    // Rounded up, because timers have whole milliseconds.
    private void SetTimerLocked(TimeSpan now)
    {
        Invariant.CheckHeld(_lock);
        TimeSpan? next = null;
        foreach (var shard in _shards)
            next = shard.NextEnd is { } end && !(next < end) ? end : next;
        if (next is { } due)
            _timer.Change(Shorter(TimeSpan.FromMilliseconds(Math.Ceiling((due - now).TotalMilliseconds)), TimerMax), Timeout.InfiniteTimeSpan);
    }

    private static TimeSpan Shorter(TimeSpan left, TimeSpan right) => left < right ? left : right;

    // The continuations of watchers must not run under the lock.
    private static TaskCompletionSource NewSignal() => new(TaskCreationOptions.RunContinuationsAsynchronously);
}

/// <summary>A shard at one moment.</summary>
/// <param name="Shard">The shard, of which only the range may be used.</param>
/// <param name="State">What it had.</param>
/// <param name="Now">The time of the store.</param>
/// <param name="Position">The newest change.</param>
internal sealed record ShardView(Shard Shard, ShardState State, TimeSpan Now, ShardPosition Position);
