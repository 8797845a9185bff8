using System.Collections.Concurrent;
using KvCluster.Client;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// The tags whose entries were removed, and when: the etags of their keys. An entry is current while its tags are as they were before it was made. Any thread.
/// </summary>
internal sealed class TagVersions : IWatched
{
    private readonly ConcurrentDictionary<KvKey, Etag> _versions = new();

    /// <summary>The present version of a tag, as far as is known.</summary>
    public Etag Of(KvKey tag) => _versions.TryGetValue(tag, out var version) ? version : Etag.None;

    /// <summary>Whether tags have not changed.</summary>
    public bool AreCurrent(TagVersion[] tags)
    {
        foreach (var (tag, version) in tags)
        {
            if (Of(tag) != version)
                return false;
        }
        return true;
    }

    /// <summary>A tag has this version, or a later one.</summary>
    public void Raise(KvKey tag, Etag version) => _versions.AddOrUpdate(tag, version, (_, present) => Etag.Max(present, version));

    public void Apply(KvEvent change)
    {
        switch (change.Kind)
        {
            case KvEventKind.Put:
                // The key is a part of its message, which must not stay for it.
                Raise(change.Key.ToArray(), change.Etag);
                break;
            case KvEventKind.Delete:
                Drop(change.Key, change.Etag);
                break;
            case KvEventKind.DeleteRange:
                foreach (var tag in _versions.Keys.Where(tag => IsIn(tag, change.Key, change.RangeEnd)))
                    Drop(tag, change.Etag);
                break;
        }
    }

    public void Forget(KvRange range)
    {
        foreach (var tag in _versions.Keys.Where(tag => IsIn(tag, range.Start, range.End)))
            _versions.TryRemove(tag, out _);
    }

    private static bool IsIn(KvKey key, KvKey start, KvKey end) => key.CompareTo(start) >= 0 && (end.IsEmpty || key.CompareTo(end) < 0);

    // What was raised by this process may be later than the change.
    private void Drop(KvKey tag, Etag change)
    {
        if (_versions.TryGetValue(tag, out var version) && version < change)
            _versions.TryRemove(new KeyValuePair<KvKey, Etag>(tag, version));
    }
}
