using KvCluster.Client;
using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// The tags of a cache. A tag is a key, whose etag is the version of the tag. An entry has the versions of its tags from before it was made, and is current
/// while they are the same, so no clocks are compared. All entries have the tag "*". The versions are known from a watch while that is live, and read
/// otherwise. Any thread.
/// </summary>
internal sealed class CacheTags : IAsyncDisposable
{
    /// <summary>Means all entries, as in the hybrid cache of .NET.</summary>
    private const string Everything = "*";

    private static readonly KvGetOptions Newest = new() { Read = KvReadMode.Leader };

    private readonly KvClient _client;
    private readonly CacheCalls _calls;
    private readonly CacheKeys _keys;
    private readonly KvKey[] _everything;
    private readonly TimeSpan _life;
    private readonly TagVersions _versions = new();
    private readonly LiveWatch _watch;

    /// <param name="client">Makes the calls.</param>
    /// <param name="prefix">Of the keys of the tags, and of no others.</param>
    /// <param name="expirationMax">How long an entry lives at most.</param>
    /// <param name="silenceMax">The watch is not live while a shard is silent for so long.</param>
    /// <param name="calls">Makes the calls that may fail.</param>
    /// <param name="time">The clock.</param>
    /// <param name="log">Where it says that the watch has ended.</param>
    public CacheTags(KvClient client, string prefix, TimeSpan expirationMax, TimeSpan silenceMax, CacheCalls calls, TimeProvider time, ILogger log)
    {
        (_client, _calls, _keys) = (client, calls, new CacheKeys(prefix));
        _everything = [_keys.Of(Everything)];
        // No entry that was made before a tag was removed lives as long, so none becomes current again when the tag is forgotten.
        _life = expirationMax + TimeSpan.FromDays(1);
        _watch = new LiveWatch(client, new KvWatch { Prefix = prefix, KeysOnly = true, Initial = true }, _versions, silenceMax, time, log);
    }

    /// <summary>Whether an entry is known to be current, without asking the cluster.</summary>
    public bool AreKnownCurrent(TagVersion[] tags) =>
        // Whether the watch is live is asked after what it knows, because that is forgotten when it ends.
        _versions.AreCurrent(tags) && _watch.IsLive;

    /// <summary>Whether an entry is current; false if the cluster does not say.</summary>
    public async ValueTask<bool> AreCurrentAsync(TagVersion[] tags, CancellationToken cancellationToken)
    {
        var areCurrent = _versions.AreCurrent(tags);
        if (_watch.IsLive)
            return areCurrent;
        var present = await VersionsAsync([.. tags.Select(static tag => tag.Tag)], cancellationToken).ConfigureAwait(false);
        return present is not null && present.AsSpan().SequenceEqual(tags);
    }

    /// <summary>The versions for a new entry; null if the cluster does not say.</summary>
    public ValueTask<TagVersion[]?> VersionsOfAsync(IEnumerable<string>? tags, CancellationToken cancellationToken)
    {
        KvKey[] keys = tags is null
            ? _everything
            : [.. _everything.Concat(tags.Where(static tag => !string.IsNullOrEmpty(tag)).Select(_keys.Of)).Distinct()];
        return VersionsAsync(keys, cancellationToken);
    }

    /// <summary>Makes all entries with a tag not current.</summary>
    /// <exception cref="KvException">They may still be. The call has waited as long as any of the client.</exception>
    public async ValueTask RemoveAsync(string tag, CancellationToken cancellationToken)
    {
        ArgumentException.ThrowIfNullOrEmpty(tag);
        var at = _keys.Of(tag);
        var put = await _client.PutAsync(at, default, new KvPutOptions { TimeToLive = _life }, cancellationToken).ConfigureAwait(false);
        // This process need not wait for the watch.
        _versions.Raise(at, put.Etag);
    }

    /// <summary>Ends the watch, without waiting for it.</summary>
    public void Stop() => _watch.Stop();

    public ValueTask DisposeAsync() => _watch.DisposeAsync();

    private async ValueTask<TagVersion[]?> VersionsAsync(KvKey[] tags, CancellationToken cancellationToken)
    {
        TagVersion[] known = [.. tags.Select(tag => new TagVersion(tag, _versions.Of(tag)))];
        if (_watch.IsLive)
            return known;
        var asked = await _calls.AskAsync(stop => _client.GetManyAsync(tags, Newest, stop), cancellationToken).ConfigureAwait(false);
        if (asked.Result is not { } found)
            return null;
        return [.. tags.Zip(found, static (tag, read) => new TagVersion(tag, read.Found ? read.Etag : Etag.None))];
    }
}
