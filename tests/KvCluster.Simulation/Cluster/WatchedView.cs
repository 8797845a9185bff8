namespace KvCluster.Simulation.Cluster;

/// <summary>
/// What a reader of a watch has that begins with the entries that there are, as it applies what it is told. When the entries are complete it is compared with
/// the committed state of every key.
/// </summary>
internal sealed class WatchedView
{
    private readonly Dictionary<string, Etag> _keys;

    public WatchedView()
        : this(new Dictionary<string, Etag>(StringComparer.Ordinal))
    {
    }

    private WatchedView(Dictionary<string, Etag> keys) => _keys = keys;

    /// <summary>False if the key is there.</summary>
    public bool TryAdd(string key, Etag etag) => _keys.TryAdd(key, etag);

    public void Put(string key, Etag etag) => _keys[key] = etag;

    public void Delete(string key) => _keys.Remove(key);

    /// <summary>Removes the keys of a range. An empty end is that of all keys.</summary>
    public void DeleteRange(string from, string to)
    {
        foreach (var key in _keys.Keys.Where(key => string.CompareOrdinal(key, from) >= 0 && (to.Length == 0 || string.CompareOrdinal(key, to) < 0)).ToArray())
            _keys.Remove(key);
    }

    /// <summary>The view as it is now.</summary>
    public WatchedView Copy() => new(new Dictionary<string, Etag>(_keys, StringComparer.Ordinal));

    /// <summary>Compares it with the committed state at the position at which the entries were complete.</summary>
    /// <param name="log">The committed state.</param>
    /// <param name="position">The position.</param>
    /// <param name="isWatched">Whether the watch has a key.</param>
    /// <param name="watch">The watch, as a violation names it.</param>
    public void Check(CommittedLog log, Etag position, Func<string, bool> isWatched, string watch)
    {
        var count = 0;
        foreach (var key in log.Keys.Where(isWatched))
        {
            var version = log.At(key, position);
            if (!version.Exists)
                continue;
            count++;
            Violation.Unless(
                _keys.TryGetValue(key, out var etag) && etag == version.Etag, Rule.CommittedStays,
                $"{watch} whose entries are complete at {position} has {key} with {etag}, and {version.Etag} is committed");
        }
        Violation.Unless(
            count == _keys.Count, Rule.CommittedStays, $"{watch} whose entries are complete at {position} has {_keys.Count} keys, and there are {count}");
    }
}
