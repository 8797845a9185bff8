using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>One caller with one operation at a time. What a scan or a write of two keys does is an entry of the history for each key, with its times.</summary>
/// <param name="client">Its number in the history.</param>
/// <param name="prefix">The history's: it begins with keys that nobody has written.</param>
internal sealed class HistoryWorker(int client, string prefix, IObservedStore store)
{
    /// <summary>First letters of keys: a test that splits its cluster between them has keys in every shard.</summary>
    private const string Letters = "ahpw";

    // Of a letter, at a time; they are in one shard.
    private const int Keys = 3;

    // Of the value of a key that was put together with the next one of its letter, or with the one before.
    private const char WithNext = '>';
    private const char WithPrevious = '<';

    // The same keys for all processes at a time, others after it: contended, and yet no key's history grows beyond what a checker can search.
    private static readonly TimeSpan KeyTime = TimeSpan.FromSeconds(1);

    // Some keys live longer than a failover takes: what was acknowledged before it is read, expected and deleted after it.
    private static readonly TimeSpan LongKeyTime = TimeSpan.FromSeconds(30);
    private const int LongKeysOneIn = 16;

    private readonly Random _random = new(client);
    private readonly Dictionary<string, string?> _lastSeen = [];
    private readonly long _begun = Time();
    private int _number;

    /// <summary>What contradicts itself in one answer, which no history shows that is checked key by key; null: nothing so far.</summary>
    public string? Contradiction { get; private set; }

    public async Task<IReadOnlyList<HistoryEntry>> NextAsync()
    {
        var group = _random.Next(LongKeysOneIn) == 0 ? LongGroup() : Group(Time());
        var index = _random.Next(Keys);
        var key = KeyOf(group, index);
        var value = string.Create(CultureInfo.InvariantCulture, $"{client}-{_number++}");
        if (_lastSeen.Count > 1000)
            _lastSeen.Clear();
        return _random.Next(100) switch
        {
            // Some of a key that was last written long ago: whoever answers from a state of then answers as if nothing had come since.
            < 4 => [await GetWeakAsync(key)],
            < 36 => [await GetAsync(_random.Next(20) == 0 ? KeyOf(Group(_random.NextInt64(_begun, Time() + 1)), index) : key)],
            < 40 => await ScanAsync(group),
            < 62 => [await PutAsync(key, value)],
            < 84 => [await PutIfAsync(key, value)],
            < 92 => await PutBothIfAsync(group, _random.Next(Keys - 1), value),
            _ => [await DeleteAsync(key)],
        };
    }

    private async Task<HistoryEntry> GetAsync(string key)
    {
        var call = Now();
        var observed = await store.GetAsync(key, DrawRead());
        return Saw(HistoryEntry.Of(client, key, "get", "", observed, call, Now()));
    }

    // Nothing that this caller goes by: it may be old.
    private async Task<HistoryEntry> GetWeakAsync(string key)
    {
        var read = _random.Next(2) == 0 ? KvReadMode.Session : KvReadMode.Stale;
        var call = Now();
        var observed = await store.GetAsync(key, read);
        return HistoryEntry.Of(client, key, "get", "", observed, call, Now()) with { Mode = read == KvReadMode.Session ? "session" : "stale" };
    }

    /// <summary>Reads a key until there is an answer; null: there was none within a time that is long enough for any failover.</summary>
    public async Task<HistoryEntry?> ReadBackAsync(string key)
    {
        for (var began = Stopwatch.GetTimestamp(); Stopwatch.GetElapsedTime(began) < Histories.Limit;)
        {
            var call = Now();
            var observed = await store.GetAsync(key, KvReadMode.Leader);
            if (observed.Status == "ok")
                return HistoryEntry.Of(client, key, "get", "", observed, call, Now());
            await Task.Delay(20);
        }
        return null;
    }

    private async Task<IReadOnlyList<HistoryEntry>> ScanAsync(string group)
    {
        var call = Now();
        var found = await store.ScanAsync(group, DrawRead());
        var returned = Now();
        if (found is null)
            return [];
        CheckWhole(group, found);
        return [.. Enumerable.Range(0, Keys).Select(index => KeyOf(group, index))
            .Select(key => Saw(HistoryEntry.Of(client, key, "get", "", found.GetValueOrDefault(key, Observation.Refused), call, returned)))];
    }

    private async Task<HistoryEntry> PutAsync(string key, string value)
    {
        var call = Now();
        var observed = await store.PutAsync(key, value);
        return Did(HistoryEntry.Of(client, key, "put", value, observed, call, Now()), value);
    }

    private async Task<HistoryEntry> PutIfAsync(string key, string value)
    {
        var expected = _lastSeen.GetValueOrDefault(key);
        var call = Now();
        var observed = await store.PutIfAsync(key, expected, value);
        return Tried(HistoryEntry.OfConditional(client, key, expected, value, observed, call, Now()));
    }

    // To the second key it is a put, which was not even tried where the condition on the first one did not hold.
    private async Task<IReadOnlyList<HistoryEntry>> PutBothIfAsync(string group, int index, string value)
    {
        var (first, second) = (KeyOf(group, index), KeyOf(group, index + 1));
        var (firstValue, secondValue) = (value + WithNext, value + WithPrevious);
        var expected = _lastSeen.GetValueOrDefault(first);
        var call = Now();
        var written = await store.PutBothIfAsync((first, firstValue), expected, (second, secondValue));
        var returned = Now();
        var ofFirst = written.Found ? written with { Etag = Etag.FromValue(written.Etag.Value - 1) } : written;
        var ofSecond = written.Status == "ok" && !written.Found ? Observation.NotDone : written;
        return
        [
            Tried(HistoryEntry.OfConditional(client, first, expected, firstValue, ofFirst, call, returned)),
            Did(HistoryEntry.Of(client, second, "put", secondValue, ofSecond, call, returned), secondValue),
        ];
    }

    private async Task<HistoryEntry> DeleteAsync(string key)
    {
        var call = Now();
        var observed = await store.DeleteAsync(key);
        return Did(HistoryEntry.Of(client, key, "delete", "", observed, call, Now()), null);
    }

    // All of them linearizable.
    private KvReadMode DrawRead() => _random.Next(20) switch
    {
        < 2 => KvReadMode.Replica,
        2 => KvReadMode.Quorum,
        _ => KvReadMode.Leader,
    };

    // A scan of one shard is of one moment: where one of two keys that were put together has its value of then, the other one has that or a later one. Absent: deleted since.
    private void CheckWhole(string group, IReadOnlyDictionary<string, Observation> found)
    {
        for (var index = 0; index < Keys - 1; index++)
        {
            var (first, second) = (found.GetValueOrDefault(KeyOf(group, index)), found.GetValueOrDefault(KeyOf(group, index + 1)));
            if (!first.Found || !second.Found)
                continue;
            if ((first.Value[^1] == WithNext && second.Etag.Value <= first.Etag.Value) || (second.Value[^1] == WithPrevious && first.Etag.Value < second.Etag.Value - 1))
                Contradiction ??= $"half of a write in a scan of {group}: {first.Value} {first.Etag} beside {second.Value} {second.Etag}";
        }
    }

    private HistoryEntry Saw(HistoryEntry read)
    {
        if (read.Status == "ok")
            _lastSeen[read.Key] = read.Found ? read.Value : null;
        return read;
    }

    private HistoryEntry Did(HistoryEntry change, string? value)
    {
        if (change.Status == "ok")
            _lastSeen[change.Key] = value;
        return change;
    }

    // A condition that failed tells only that this caller knows nothing.
    private HistoryEntry Tried(HistoryEntry change)
    {
        if (change.Status == "ok")
            _lastSeen[change.Key] = change.Found ? change.Value : change.ExpectMissing ? "nothing that was ever written" : null;
        return change;
    }

    private string Group(long time) => string.Create(CultureInfo.InvariantCulture, $"{Letters[_random.Next(Letters.Length)]}{prefix}-{time}-");

    private string LongGroup() => string.Create(
        CultureInfo.InvariantCulture, $"{Letters[_random.Next(Letters.Length)]}{prefix}-long{(long)(Stopwatch.GetElapsedTime(0) / LongKeyTime)}-");

    private static string KeyOf(string group, int index) => group + index.ToString(CultureInfo.InvariantCulture);

    private static long Time() => (long)(Stopwatch.GetElapsedTime(0) / KeyTime);

    private static long Now() => (long)(Stopwatch.GetElapsedTime(0).TotalMicroseconds * 1000);
}
