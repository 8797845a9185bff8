using System.Buffers;
using System.Collections.Concurrent;
using KvCluster.Client;
using Microsoft.Extensions.Caching.Distributed;
using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// The cache of a program in a cluster, which all its processes share. Each entry is a key that ends by itself. A read that fails finds nothing, and what was
/// to be set is not, so no request fails because of the cache. Only a remove fails, because its caller knows that the entry is wrong. Any thread.
/// </summary>
internal sealed class KvDistributedCache : IBufferDistributedCache
{
    /// <summary>Of a value in the cluster.</summary>
    private const int ValueBytesMax = 8 << 20;

    private readonly KvClient _client;
    private readonly CacheKeys _keys;
    private readonly CacheCalls _calls;
    private readonly TimeProvider _time;
    private readonly KvGetOptions _read;
    private readonly TimeSpan _slidingDefault;

    // One caller prolongs an entry. Those that read it meanwhile need not.
    private readonly ConcurrentDictionary<KvKey, bool> _prolonged = new();

    public KvDistributedCache(KvClient client, KvDistributedCacheOptions options, TimeProvider time, ILogger log)
    {
        (_client, _time, _keys, _slidingDefault) = (client, time, new CacheKeys(options.Prefix), options.DefaultSlidingExpiration);
        _calls = new CacheCalls("distributed cache", options.Timeout, time, log);
        _read = new KvGetOptions { Read = options.Read, WithLife = true };
    }

    public byte[]? Get(string key) => GetAsync(key).GetAwaiter().GetResult();

    public async Task<byte[]?> GetAsync(string key, CancellationToken token = default) =>
        await FindAsync(key, token).ConfigureAwait(false) is { } found ? found.ToArray() : null;

    public bool TryGet(string key, IBufferWriter<byte> destination) => TryGetAsync(key, destination).AsTask().GetAwaiter().GetResult();

    public async ValueTask<bool> TryGetAsync(string key, IBufferWriter<byte> destination, CancellationToken token = default)
    {
        ArgumentNullException.ThrowIfNull(destination);
        if (await FindAsync(key, token).ConfigureAwait(false) is not { } found)
            return false;
        destination.Write(found.Span);
        return true;
    }

    public void Set(string key, byte[] value, DistributedCacheEntryOptions options) => SetAsync(key, value, options).GetAwaiter().GetResult();

    public void Set(string key, ReadOnlySequence<byte> value, DistributedCacheEntryOptions options) =>
        SetAsync(key, value, options).AsTask().GetAwaiter().GetResult();

    public Task SetAsync(string key, byte[] value, DistributedCacheEntryOptions options, CancellationToken token = default)
    {
        ArgumentNullException.ThrowIfNull(value);
        return SetAsync(key, new ReadOnlySequence<byte>(value), options, token).AsTask();
    }

    public async ValueTask SetAsync(
        string key, ReadOnlySequence<byte> value, DistributedCacheEntryOptions options, CancellationToken token = default)
    {
        ArgumentNullException.ThrowIfNull(options);
        var at = _keys.Of(key);
        var now = _time.GetUtcNow();
        var entry = CacheEntry.Of(options, _slidingDefault, now);
        if (value.Length > ValueBytesMax - CacheEntry.HeaderBytes)
            _calls.Note($"An entry of {value.Length:N0} bytes was to be set, and one has at most {ValueBytesMax - CacheEntry.HeaderBytes:N0}.", failure: null);
        else if (entry.LifeFrom(now) is { } life)
        {
            var stored = entry.ToValue(value);
            await _calls.AskAsync(stop => _client.PutAsync(at, stored, new KvPutOptions { TimeToLive = life }, stop), token).ConfigureAwait(false);
            return;
        }
        // The entry before is not the one that was to be set.
        await _calls.AskAsync(stop => _client.DeleteAsync(at, cancellationToken: stop), token).ConfigureAwait(false);
    }

    public void Refresh(string key) => RefreshAsync(key).GetAwaiter().GetResult();

    public async Task RefreshAsync(string key, CancellationToken token = default) => await FindAsync(key, token).ConfigureAwait(false);

    public void Remove(string key) => RemoveAsync(key).GetAwaiter().GetResult();

    /// <exception cref="KvException">The entry may still be there. The call has waited as long as any of the client.</exception>
    public async Task RemoveAsync(string key, CancellationToken token = default) =>
        await _client.DeleteAsync(_keys.Of(key), cancellationToken: token).ConfigureAwait(false);

    private async ValueTask<ReadOnlyMemory<byte>?> FindAsync(string key, CancellationToken cancellationToken)
    {
        var at = _keys.Of(key);
        var asked = await _calls.AskAsync(stop => _client.GetAsync(at, _read, stop), cancellationToken).ConfigureAwait(false);
        var found = asked.Result;
        if (!found.Found || CacheEntry.Read(found.Value.Memory) is not { } entry)
            return null;
        if (found.Life.Left is { } left && entry.LifeFrom(_time.GetUtcNow()) is { } life && entry.IsProlonged(left, life))
            await ProlongAsync(at, found.Etag, life, cancellationToken).ConfigureAwait(false);
        return entry.Payload;
    }

    private async ValueTask ProlongAsync(KvKey at, Etag etag, TimeSpan life, CancellationToken cancellationToken)
    {
        if (!_prolonged.TryAdd(at, true))
            return;
        try
        {
            // An entry that was set meanwhile has another expiry.
            await _calls.AskAsync(stop => _client.TouchAsync(at, life, KvCondition.EtagEquals(etag), stop), cancellationToken).ConfigureAwait(false);
        }
        finally
        {
            _prolonged.TryRemove(at, out _);
        }
    }
}
