namespace KvCluster.Cli.Selftest;

/// <summary>What was put, what a watch told of it, and whether it told of everything once and in order. Any thread.</summary>
internal sealed class WatchHistory
{
    private readonly Lock _lock = new();
    private readonly Dictionary<(string Key, Etag Etag), string> _answered = [];
    private readonly Dictionary<(string Key, Etag Etag), string> _told = [];
    private readonly Dictionary<string, Etag> _lastTold = new(StringComparer.Ordinal);
    private readonly HashSet<string> _sent = new(StringComparer.Ordinal);
    private string? _mistake;

    /// <summary>A put is about to be sent. Its value is sent once only.</summary>
    public void Sent(string value)
    {
        lock (_lock)
            _sent.Add(value);
    }

    /// <summary>A put was answered.</summary>
    public void Answered(string key, string value, Etag etag)
    {
        lock (_lock)
            _answered.Add((key, etag), value);
    }

    /// <summary>The watch told of a put.</summary>
    public void Told(string key, string value, Etag etag)
    {
        lock (_lock)
        {
            if (!_told.TryAdd((key, etag), value))
                _mistake ??= $"{key}: the watch told of etag {etag} twice";
            else if (_lastTold.TryGetValue(key, out var last) && etag <= last)
                _mistake ??= $"{key}: the watch told of etag {etag} after {last}";
            else if (!_sent.Contains(value))
                _mistake ??= $"{key}: the watch told of the value {value}, which nobody has put";
            _lastTold[key] = etag;
        }
    }

    /// <summary>Answered puts of which the watch has not told.</summary>
    public int Missing
    {
        get
        {
            lock (_lock)
                return _answered.Keys.Count(put => !_told.ContainsKey(put));
        }
    }

    /// <summary>Answered puts.</summary>
    public int Count
    {
        get
        {
            lock (_lock)
                return _answered.Count;
        }
    }

    /// <summary>A mistake that no further event can correct; null if there is none yet.</summary>
    public string? Mistake
    {
        get
        {
            lock (_lock)
                return _mistake;
        }
    }

    /// <exception cref="SelftestFailure">The watch has left something out, repeated it, changed it or its order.</exception>
    public void Judge()
    {
        lock (_lock)
        {
            if (_mistake is not null)
                throw new SelftestFailure(_mistake);
            foreach (var (put, value) in _answered)
            {
                SelftestFailure.Unless(_told.TryGetValue(put, out var told), $"{put.Key}: the watch did not tell of {value} with etag {put.Etag}");
                SelftestFailure.Unless(told == value, $"{put.Key}: the watch told of etag {put.Etag} with the value {told}, and {value} was put");
            }
        }
    }
}
