namespace KvCluster.Cli.Selftest;

/// <summary>What was put and deleted, what a watch told of it, and whether it told of everything once and in order. Any thread.</summary>
internal sealed class WatchHistory
{
    /// <summary>What stands for the value of a delete.</summary>
    public const string Deleted = "(deleted)";

    private readonly Lock _lock = new();
    private readonly Dictionary<(string Key, Etag Etag), string> _answered = [];
    private readonly Dictionary<(string Key, Etag Etag), string> _told = [];
    private readonly Dictionary<string, Etag> _lastTold = new(StringComparer.Ordinal);
    private readonly HashSet<string> _sent = new(StringComparer.Ordinal);
    private readonly HashSet<string> _refused = new(StringComparer.Ordinal);
    private readonly Dictionary<string, Etag> _etagOfValue = new(StringComparer.Ordinal);
    private string? _mistake;

    /// <summary>A change is about to be sent. The value of a put is sent once only.</summary>
    public void Sent(string value)
    {
        lock (_lock)
            _sent.Add(value);
    }

    /// <summary>A put was certainly not applied.</summary>
    public void Refused(string value)
    {
        lock (_lock)
            _refused.Add(value);
    }

    /// <summary>A change was answered.</summary>
    public void Answered(string key, string value, Etag etag)
    {
        lock (_lock)
        {
            if (!_answered.TryAdd((key, etag), value))
                _mistake ??= $"{key}: each change was expected to get an etag of its own, and two got etag {etag}";
        }
    }

    /// <summary>The watch told of a change.</summary>
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
            else if (value != Deleted && !_etagOfValue.TryAdd(value, etag))
                _mistake ??= $"{key}: the watch told of {value} with etag {_etagOfValue[value]} and with etag {etag}, so its put was applied twice";
            _lastTold[key] = etag;
        }
    }

    /// <summary>Answered changes of which the watch has not told.</summary>
    public int Missing
    {
        get
        {
            lock (_lock)
                return _answered.Keys.Count(put => !_told.ContainsKey(put));
        }
    }

    /// <summary>Answered changes.</summary>
    public int Count
    {
        get
        {
            lock (_lock)
                return _answered.Count;
        }
    }

    /// <summary>Whether the watch told of any change of a key.</summary>
    public bool HasTold(string key)
    {
        lock (_lock)
            return _lastTold.ContainsKey(key);
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
            var wrong = _refused.FirstOrDefault(_etagOfValue.ContainsKey);
            SelftestFailure.Unless(wrong is null, $"the watch told of {wrong}, whose put was refused as certainly not applied");
        }
    }
}
