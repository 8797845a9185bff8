using System.Buffers;
using System.Collections.Concurrent;
using System.Diagnostics.CodeAnalysis;
using KvCluster.Client;
using Microsoft.Extensions.Caching.Hybrid;
using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// The hybrid cache over a cluster. What changes there goes from the memory of each process, because each watches it. No request fails because of the cluster,
/// except one that removes: its caller knows that entries are wrong. Any thread.
/// </summary>
internal sealed class KvHybridCache : HybridCache, IAsyncDisposable, IDisposable
{
    /// <summary>Of a value in the cluster.</summary>
    private const int ValueBytesMax = 8 << 20;

    private static readonly TimeSpan ShortestLife = TimeSpan.FromMilliseconds(1);
    private static readonly KvGetOptions Newest = new() { Read = KvReadMode.Leader, WithLife = true };

    private readonly KvClient _client;
    private readonly KvHybridCacheOptions _options;
    private readonly HybridSerializers _serializers;
    private readonly CacheCalls _calls;
    private readonly CacheKeys _keys;
    private readonly CacheTags _tags;
    private readonly LocalLevel _local;
    private readonly LiveWatch _watch;
    private readonly ConcurrentDictionary<(KvKey Key, Type Type, HybridCacheEntryFlags Flags), object> _flights = new();

    public KvHybridCache(KvClient client, KvHybridCacheOptions options, HybridSerializers serializers, TimeProvider time, ILogger log)
    {
        (_client, _options, _serializers) = (client, options, serializers);
        _calls = new CacheCalls("hybrid cache", options.Timeout, time, log);
        var entries = $"{options.Prefix}e/";
        _keys = new CacheKeys(entries);
        _tags = new CacheTags(client, $"{options.Prefix}t/", options.ExpirationMax, options.LocalSilenceMax, _calls, time, log);
        _local = new LocalLevel(options.LocalBytesMax);
        _watch = new LiveWatch(client, new KvWatch { Prefix = entries, KeysOnly = true }, _local, options.LocalSilenceMax, time, log);
    }

    public override ValueTask<T> GetOrCreateAsync<TState, T>(
        string key, TState state, Func<TState, CancellationToken, ValueTask<T>> factory, HybridCacheEntryOptions? options = null,
        IEnumerable<string>? tags = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(factory);
        if (cancellationToken.IsCancellationRequested)
            return ValueTask.FromCanceled<T>(cancellationToken);
        var request = RequestOf(key, options, tags);
        return request.Allows(HybridCacheEntryFlags.DisableLocalCacheRead) && FindLocal(request.Key) is { } local && TryRead<T>(local, out var found)
            ? ValueTask.FromResult(found)
            : ShareAsync(request, state, factory, cancellationToken);
    }

    public override async ValueTask SetAsync<T>(
        string key, T value, HybridCacheEntryOptions? options = null, IEnumerable<string>? tags = null, CancellationToken cancellationToken = default)
    {
        var request = RequestOf(key, options, tags);
        var mark = MarkOf(request.Key);
        var versions = await _tags.VersionsOfAsync(tags, cancellationToken).ConfigureAwait(false);
        await StoreAsync(request, value, versions, mark, replaces: true, unchanged: null, cancellationToken).ConfigureAwait(false);
        Part(request.Key);
    }

    /// <exception cref="KvException">The entry may still be there. The call has waited as long as any of the client.</exception>
    public override async ValueTask RemoveAsync(string key, CancellationToken cancellationToken = default)
    {
        var at = _keys.Of(key);
        var removed = await _client.DeleteAsync(at, cancellationToken: cancellationToken).ConfigureAwait(false);
        // This process need not wait for the watch.
        _local.Change(at, removed.Position.Etag);
        Part(at);
    }

    /// <exception cref="KvException">The entries may still be there. The call has waited as long as any of the client.</exception>
    public override async ValueTask RemoveByTagAsync(string tag, CancellationToken cancellationToken = default)
    {
        await _tags.RemoveAsync(tag, cancellationToken).ConfigureAwait(false);
        _flights.Clear();
    }

    public void Dispose()
    {
        _watch.Stop();
        _tags.Stop();
    }

    public async ValueTask DisposeAsync()
    {
        Dispose();
        await _watch.DisposeAsync().ConfigureAwait(false);
        await _tags.DisposeAsync().ConfigureAwait(false);
    }

    private HybridRequest RequestOf(string key, HybridCacheEntryOptions? options, IEnumerable<string>? tags)
    {
        var life = options?.Expiration ?? _options.Expiration;
        life = life < ShortestLife ? ShortestLife : life > _options.ExpirationMax ? _options.ExpirationMax : life;
        return new HybridRequest(_keys.Of(key), tags, options?.Flags ?? HybridCacheEntryFlags.None, life, options?.LocalCacheExpiration ?? life);
    }

    // Whether the watch is live is asked after what it knows, because that is forgotten when it ends.
    private HybridEntry? FindLocal(KvKey key) => _local.Find(key) is { } entry && _watch.IsLive && _tags.AreKnownCurrent(entry.Tags) ? entry : null;

    // To be noted before an entry is read or put; null if it cannot be kept, because changes of it may not be known.
    private long? MarkOf(KvKey key) => _watch.IsLive ? _local.MarkOf(key) : null;

    // Whoever comes after a change shares no attempt that was begun before it.
    private void Part(KvKey key)
    {
        foreach (var (id, _) in _flights)
        {
            if (id.Key == key)
                _flights.TryRemove(id, out _);
        }
    }

    // Callers of the same key, type and flags share one attempt.
    private async ValueTask<T> ShareAsync<TState, T>(
        HybridRequest request, TState state, Func<TState, CancellationToken, ValueTask<T>> factory, CancellationToken cancellationToken)
    {
        var id = (request.Key, typeof(T), request.Flags);
        while (true)
        {
            var flight = (Flight<T>)_flights.GetOrAdd(id, static _ => new Flight<T>());
            if (flight.TryJoin(out var isFirst))
            {
                // Its result and its failure are those of the flight.
                if (isFirst)
                    _ = RunAsync(flight, request, state, factory);
                var made = await flight.ResultAsync(cancellationToken).ConfigureAwait(false);
                return !isFirst && made.Entry is { } entry && TryRead<T>(entry, out var own) ? own : made.Value;
            }
            // It was given up, and has not ended yet.
            _flights.TryRemove(new KeyValuePair<(KvKey, Type, HybridCacheEntryFlags), object>(id, flight));
        }
    }

    private async Task RunAsync<TState, T>(
        Flight<T> flight, HybridRequest request, TState state, Func<TState, CancellationToken, ValueTask<T>> factory)
    {
        try
        {
            var made = await FindOrMakeAsync(request, state, factory, flight.Abandoned).ConfigureAwait(false);
            // First, because who is told may ask again at once, and would be given the same.
            Leave();
            flight.Succeed(made);
        }
        catch (Exception failure)
        {
            // Whatever the factory throws is for those who wait.
            Leave();
            flight.Fail(failure);
        }

        void Leave() =>
            _flights.TryRemove(new KeyValuePair<(KvKey, Type, HybridCacheEntryFlags), object>((request.Key, typeof(T), request.Flags), flight));
    }

    private async ValueTask<Made<T>> FindOrMakeAsync<TState, T>(
        HybridRequest request, TState state, Func<TState, CancellationToken, ValueTask<T>> factory, CancellationToken cancellationToken)
    {
        var (at, mark) = (request.Key, MarkOf(request.Key));
        KvCondition? unchanged = null;
        if (request.Allows(HybridCacheEntryFlags.DisableDistributedCacheRead))
        {
            var (isAnswered, found) = await _calls.AskAsync(stop => _client.GetAsync(at, Newest, stop), cancellationToken).ConfigureAwait(false);
            // What another caller sets while the value is made is newer.
            if (isAnswered)
                unchanged = KvCondition.EtagEquals(found.Etag);
            if (found.Found && HybridEntry.Read(found.Value.Memory, found.Etag) is { } stored
                && await _tags.AreCurrentAsync(stored.Tags, cancellationToken).ConfigureAwait(false) && TryRead<T>(stored, out var value))
            {
                stored = Shared(stored, value);
                Keep(request, mark, stored, found.Life.Left ?? request.Life);
                return new Made<T>(value, stored);
            }
        }
        if (!request.Allows(HybridCacheEntryFlags.DisableUnderlyingData))
            return default;
        // Before the value is made. If a tag is removed meanwhile, the value may be made of what was before that.
        var versions = await _tags.VersionsOfAsync(request.Tags, cancellationToken).ConfigureAwait(false);
        var made = await factory(state, cancellationToken).ConfigureAwait(false);
        return new Made<T>(made, await StoreAsync(request, made, versions, mark, replaces: false, unchanged, cancellationToken).ConfigureAwait(false));
    }

    // Returns null if the value cannot be written.
    private async ValueTask<HybridEntry?> StoreAsync<T>(
        HybridRequest request, T value, TagVersion[]? versions, long? mark, bool replaces, KvCondition? unchanged, CancellationToken cancellationToken)
    {
        if (!TryWrite(value, versions ?? [], out var entry))
            return null;
        var at = request.Key;
        if (request.Allows(HybridCacheEntryFlags.DisableDistributedCacheWrite))
        {
            var stored = entry.ToValue();
            if (stored.Length > ValueBytesMax)
                _calls.Note($"An entry has {stored.Length:N0} bytes in the cluster, where one has at most {ValueBytesMax:N0}.", failure: null);
            var terms = new KvPutOptions { TimeToLive = request.Life, Condition = unchanged };
            var put = versions is null || stored.Length > ValueBytesMax
                ? default
                : await _calls.AskAsync(stop => _client.PutAsync(at, stored, terms, stop), cancellationToken).ConfigureAwait(false);
            if (!put.IsAnswered)
            {
                // Where a value was to be replaced, it is not the one that its caller wants to be found.
                if (replaces)
                {
                    await _calls.AskAsync(stop => _client.DeleteAsync(at, cancellationToken: stop), cancellationToken).ConfigureAwait(false);
                    _local.Drop(at);
                }
                return entry;
            }
            entry = entry with { Etag = put.Result.Etag };
        }
        // The entry before must not be found until the watch tells of this one.
        if (versions is null || !Keep(request, mark, entry, request.Life))
            _local.Change(at, entry.Etag);
        return entry;
    }

    private bool Keep(HybridRequest request, long? mark, HybridEntry entry, TimeSpan life) =>
        mark is { } noted && request.Allows(HybridCacheEntryFlags.DisableLocalCacheWrite)
            && _local.Keep(request.Key, noted, entry, life < request.LocalLife ? life : request.LocalLife);

    // The entry with its value, if callers can share that.
    private static HybridEntry Shared<T>(HybridEntry entry, T value) => HybridSerializers.IsImmutable<T>() ? entry with { Value = value } : entry;

    private bool TryRead<T>(HybridEntry entry, [MaybeNullWhen(false)] out T value)
    {
        if (entry.IsNull)
        {
            value = default!;
            return true;
        }
        if (entry.Value is T same)
        {
            value = same;
            return true;
        }
        try
        {
            value = _serializers.Of<T>().Deserialize(new ReadOnlySequence<byte>(entry.Payload));
            return true;
        }
        catch (Exception failure) when (failure is not OutOfMemoryException)
        {
            // Of another version of the program, perhaps.
            _calls.Note($"An entry is no {typeof(T)}.", failure);
            value = default;
            return false;
        }
    }

    private bool TryWrite<T>(T value, TagVersion[] tags, [NotNullWhen(true)] out HybridEntry? entry)
    {
        try
        {
            var payload = new ArrayBufferWriter<byte>();
            if (value is not null)
                _serializers.Of<T>().Serialize(value, payload);
            entry = Shared(new HybridEntry(Etag.None, tags, value is null, payload.WrittenMemory), value);
            return true;
        }
        catch (Exception failure) when (failure is not OutOfMemoryException)
        {
            _calls.Note($"A {typeof(T)} cannot be written.", failure);
            entry = null;
            return false;
        }
    }

    /// <summary>What a caller asks for.</summary>
    /// <param name="Key">The key in the cluster.</param>
    /// <param name="Tags">The tags.</param>
    /// <param name="Flags">What the caller does not want.</param>
    /// <param name="Life">How long an entry stays in the cluster.</param>
    /// <param name="LocalLife">How long it stays in memory at most.</param>
    private sealed record HybridRequest(KvKey Key, IEnumerable<string>? Tags, HybridCacheEntryFlags Flags, TimeSpan Life, TimeSpan LocalLife)
    {
        public bool Allows(HybridCacheEntryFlags disabling) => (Flags & disabling) == 0;
    }
}
