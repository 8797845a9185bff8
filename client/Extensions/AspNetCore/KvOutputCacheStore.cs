using KvCluster.Client;
using KvCluster.Extensions.Caching;
using Microsoft.AspNetCore.OutputCaching;
using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.AspNetCore;

/// <summary>
/// The cached responses of a program in a cluster, which all its processes share. A response is an entry like those of the hybrid cache, with its tags. No
/// request fails because of the cluster. Only an eviction does, because its caller knows that responses are wrong. Any thread.
/// </summary>
internal sealed class KvOutputCacheStore : IOutputCacheStore, IAsyncDisposable, IDisposable
{
    /// <summary>Of a value in the cluster.</summary>
    private const int ValueBytesMax = 8 << 20;

    /// <summary>A response stays no longer, whatever its policy says, because the cluster remembers for a day longer that a tag was evicted.</summary>
    private static readonly TimeSpan LongestLife = TimeSpan.FromDays(30);

    private static readonly TimeSpan ShortestLife = TimeSpan.FromMilliseconds(1);

    /// <summary>Tags are read from the cluster while a shard has told nothing for so long.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(5);

    private static readonly KvGetOptions Newest = new() { Read = KvReadMode.Leader };

    private readonly KvClient _client;
    private readonly CacheCalls _calls;
    private readonly CacheKeys _keys;
    private readonly CacheTags _tags;

    public KvOutputCacheStore(KvClient client, KvOutputCacheOptions options, TimeProvider time, ILogger log)
    {
        _client = client;
        _calls = new CacheCalls("output cache", options.Timeout, time, log);
        _keys = new CacheKeys($"{options.Prefix}e/");
        _tags = new CacheTags(client, $"{options.Prefix}t/", LongestLife, SilenceMax, _calls, time, log);
    }

    public async ValueTask<byte[]?> GetAsync(string key, CancellationToken cancellationToken)
    {
        var at = _keys.Of(key);
        var found = (await _calls.AskAsync(stop => _client.GetAsync(at, Newest, stop), cancellationToken).ConfigureAwait(false)).Result;
        return found.Found && HybridEntry.Read(found.Value.Memory, found.Etag) is { } entry
            && await _tags.AreCurrentAsync(entry.Tags, cancellationToken).ConfigureAwait(false)
                ? entry.Payload.ToArray()
                : null;
    }

    public async ValueTask SetAsync(string key, byte[] value, string[]? tags, TimeSpan validFor, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(value);
        var (at, life) = (_keys.Of(key), validFor > LongestLife ? LongestLife : validFor);
        if (life < ShortestLife || await _tags.VersionsOfAsync(tags, cancellationToken).ConfigureAwait(false) is not { } versions)
            return;
        var stored = new HybridEntry(Etag.None, versions, IsNull: false, value).ToValue();
        if (stored.Length > ValueBytesMax)
        {
            _calls.Note($"A response has {stored.Length:N0} bytes in the cluster, where one has at most {ValueBytesMax:N0}.", failure: null);
            return;
        }
        await _calls.AskAsync(stop => _client.PutAsync(at, stored, new KvPutOptions { TimeToLive = life }, stop), cancellationToken).ConfigureAwait(false);
    }

    /// <exception cref="KvException">The responses may still be there. The call has waited as long as any of the client.</exception>
    public ValueTask EvictByTagAsync(string tag, CancellationToken cancellationToken) => _tags.RemoveAsync(tag, cancellationToken);

    public void Dispose() => _tags.Stop();

    public ValueTask DisposeAsync() => _tags.DisposeAsync();
}
