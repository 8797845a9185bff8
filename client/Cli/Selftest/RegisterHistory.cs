namespace KvCluster.Cli.Selftest;

/// <summary>
/// Puts and reads of some keys by many callers, and whether they are linearizable. Etags order the changes of a key, so it is enough that nothing contradicts
/// them: what ended before a call began comes before it. Added by any thread, judged when all have ended.
/// </summary>
internal sealed class RegisterHistory
{
    private readonly Lock _lock = new();
    private readonly List<Call> _calls = [];

    /// <summary>Adds a put; <paramref name="etag"/> is null if its outcome is unknown.</summary>
    public void Put(string key, string value, long began, long ended, Etag? etag) => Add(new Call(key, IsPut: true, value, began, ended, etag));

    /// <summary>Adds a read that found a value.</summary>
    public void Read(string key, string value, long began, long ended, Etag etag) => Add(new Call(key, IsPut: false, value, began, ended, etag));

    /// <summary>Adds a read that found nothing. The keys are never deleted.</summary>
    public void ReadNothing(string key, long began, long ended) => Add(new Call(key, IsPut: false, "", began, ended, Etag: null));

    /// <summary>Calls added.</summary>
    public int Count
    {
        get
        {
            lock (_lock)
                return _calls.Count;
        }
    }

    /// <exception cref="SelftestFailure">It is not linearizable.</exception>
    public void Judge()
    {
        foreach (var ofKey in _calls.GroupBy(static call => call.Key, StringComparer.Ordinal))
            Judge(ofKey.Key, [.. ofKey]);
    }

    private static void Judge(string key, Call[] calls)
    {
        var puts = calls.Where(static call => call.IsPut).ToDictionary(static put => put.Value, StringComparer.Ordinal);
        var shared = puts.Values.Where(static put => put.Etag is not null).GroupBy(static put => put.Etag).FirstOrDefault(static group => group.Count() > 1);
        SelftestFailure.Unless(shared is null, $"{key}: each put was expected to get an etag of its own, and {shared?.Count()} got etag {shared?.Key}");
        var etags = new Dictionary<string, Etag>(StringComparer.Ordinal);
        var byEnd = calls.Where(static call => call.Etag is not null).OrderBy(static call => call.Ended).ToArray();
        var (ended, floor, floorOf) = (0, Etag.None, default(Call));
        foreach (var call in calls.OrderBy(static call => call.Began))
        {
            for (; ended < byEnd.Length && byEnd[ended].Ended < call.Began; ended++)
            {
                if (byEnd[ended].Etag > floor)
                    (floor, floorOf) = (byEnd[ended].Etag!.Value, byEnd[ended]);
            }
            if (call.Etag is not { } etag)
            {
                SelftestFailure.Unless(call.IsPut || floorOf is null, $"{key}: a read found nothing although {floorOf?.Value} with etag {floor} had been "
                    + $"answered before it began");
                continue;
            }
            if (call.IsPut)
            {
                SelftestFailure.Unless(
                    etag > floor, $"{key}: a put got etag {etag} although {floorOf?.Value} with etag {floor} had been answered before it began");
                continue;
            }
            SelftestFailure.Unless(etag >= floor, $"{key}: a read returned {call.Value} with etag {etag} although {floorOf?.Value} with etag {floor} had been "
                + $"answered before it began");
            SelftestFailure.Unless(puts.TryGetValue(call.Value, out var put), $"{key}: a read returned {call.Value}, which nobody put");
            SelftestFailure.Unless(put!.Began <= call.Ended, $"{key}: a read returned {call.Value} before its put began");
            SelftestFailure.Unless(
                put.Etag is null || put.Etag == etag, $"{key}: a read returned {call.Value} with etag {etag}, and its put was answered with {put.Etag}");
            // This includes puts of unknown outcome: such a put may have been applied, but only once.
            SelftestFailure.Unless(etags.TryAdd(call.Value, etag) || etags[call.Value] == etag, $"{key}: reads returned {call.Value} with etag "
                + $"{etags[call.Value]} and with etag {etag}, so its put was applied twice");
        }
    }

    private void Add(Call call)
    {
        lock (_lock)
            _calls.Add(call);
    }

    private sealed record Call(string Key, bool IsPut, string Value, long Began, long Ended, Etag? Etag);
}
