namespace KvCluster.Client;

/// <summary>
/// Fits the events of a watch to what its reader asked for: a removed range is told only as far as it is watched, and as its keys if the reader wants that
/// (<see cref="KvWatch.ExpandRanges"/>). Used by the reader of one watch.
/// </summary>
internal sealed class FittedEvents
{
    private readonly KeyBounds _watched;
    private readonly bool _isOneKey;

    /// <summary>The keys that the reader knows; null if it does not want ranges as keys.</summary>
    private readonly SortedSet<KvKey>? _keys;

    public FittedEvents(KvWatch watch)
    {
        var bounds = KeyBounds.Of(watch.Start, watch.End, watch.Prefix);
        (_watched, _isOneKey) = (watch.IsOneKey ? new KeyBounds(watch.Prefix, (byte[])[.. watch.Prefix.Span, 0]) : bounds, watch.IsOneKey);
        _keys = watch.ExpandRanges ? [] : null;
    }

    /// <summary>The events as the reader gets them.</summary>
    public IReadOnlyList<KvEvent> Fit(IReadOnlyList<KvEvent> events)
    {
        if (_keys is null && !events.Any(static happened => happened.Kind == KvEventKind.DeleteRange))
            return events;
        var fitted = new List<KvEvent>(events.Count);
        foreach (var happened in events)
        {
            if (happened.Kind != KvEventKind.DeleteRange)
                fitted.Add(happened);
            else if (_keys is null)
                fitted.Add(Clip(happened));
            else
                fitted.AddRange(KeysIn(happened.Key, happened.RangeEnd).Select(key => DeleteOf(key, happened)));
            Learn(happened);
        }
        return fitted;
    }

    /// <summary>The entries of a range begin anew.</summary>
    public void Forget(KvRange range)
    {
        if (_keys is not null)
            Remove(range.Start, range.End);
    }

    private void Learn(KvEvent happened)
    {
        if (_keys is null)
            return;
        if (happened.Kind == KvEventKind.Put)
            _keys.Add(happened.Key);
        else if (happened.Kind == KvEventKind.Delete)
            _keys.Remove(happened.Key);
        else if (happened.Kind == KvEventKind.DeleteRange)
            Remove(happened.Key, happened.RangeEnd);
    }

    private void Remove(KvKey start, KvKey end)
    {
        foreach (var key in KeysIn(start, end))
            _keys!.Remove(key);
    }

    // A copy, because keys are removed while it is read. A node names where its shard ends, so an empty end is that of all keys.
    private List<KvKey> KeysIn(KvKey start, KvKey end)
    {
        var last = end.IsEmpty ? _keys!.Max : end;
        return _keys!.Count == 0 || start.CompareTo(last) > 0 ? []
            : [.. _keys!.GetViewBetween(start, last).Where(key => end.IsEmpty || key.CompareTo(end) < 0)];
    }

    private KvEvent Clip(KvEvent happened)
    {
        if (_isOneKey)
            return DeleteOf(_watched.Lower, happened);
        var (lower, upper) = new KeyBounds(happened.Key, happened.RangeEnd).From(_watched.Lower, reverse: false).From(_watched.Upper, reverse: true);
        return happened with { Key = lower, RangeEnd = upper };
    }

    private static KvEvent DeleteOf(KvKey key, KvEvent range) => new(KvEventKind.Delete, range.Reason, key, range.Etag);
}
