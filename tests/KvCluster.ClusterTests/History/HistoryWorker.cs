using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>One caller with one operation at a time. A scan or a write of two keys becomes an entry of the history for each key, with its
/// times.</summary>
/// <param name="client">Its number in the history.</param>
/// <param name="prefix">The prefix of the history, whose keys nobody has written before.</param>
internal sealed class HistoryWorker(int client, string prefix, IObservedStore store)
{
    /// <summary>First letters of keys. If a test splits its cluster between them, every shard has keys.</summary>
    private const string Letters = "ahpw";

    // Keys per letter at a time. They are in one shard.
    private const int Keys = 3;

    // Marks a value that was put together with the next or the previous key of its letter.
    private const char WithNext = '>';
    private const char WithPrevious = '<';

    // All processes use the same keys at a time, and then others. So there is contention, but no key's history grows beyond what a checker can search.
    private static readonly TimeSpan KeyTime = TimeSpan.FromSeconds(1);

    // Some keys live longer than a failover takes, so that values acknowledged before it are read, expected and deleted after it.
    private static readonly TimeSpan LongKeyTime = TimeSpan.FromSeconds(30);
    private const int LongKeysOneIn = 16;

    private readonly Random _random = new(client);
    private readonly Dictionary<string, string?> _lastSeen = [];
    private readonly long _begun = Time();
    private int _number;

    /// <summary>A contradiction within one answer, which no check key by key reveals. Null if there was none so far.</summary>
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
            // Sometimes a key that was last written long ago, to which outdated state may still give a valid answer.
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

    // The caller does not rely on it, because it may be old.
    private async Task<HistoryEntry> GetWeakAsync(string key)
    {
        var read = _random.Next(2) == 0 ? KvReadMode.Session : KvReadMode.Stale;
        var call = Now();
        var observed = await store.GetAsync(key, read);
        return HistoryEntry.Of(client, key, "get", "", observed, call, Now()) with { Mode = read == KvReadMode.Session ? "session" : "stale" };
    }

    /// <summary>Reads a key until there is an answer. Null if there was none within a time that is long enough for any failover.</summary>
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

    // For the second key it is a put, which was not even tried if the condition on the first one did not hold.
    private async Task<IReadOnlyList<HistoryEntry>> PutBothIfAsync(string group, int index, string value)
    {
        var (first, second) = (KeyOf(group, index), KeyOf(group, index + 1));
        var (firstValue, secondValue) = (value + WithNext, value + WithPrevious);
        var expected = _lastSeen.GetValueOrDefault(first);
        var call = Now();
        var written = await store.PutBothIfAsync((first, firstValue), expected, (second, secondValue));
        var returned = Now();
        var ofFirst = written.Found ? written with { Etag = written.Etag.Predecessor } : written;
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

    // All of these are linearizable.
    private KvReadMode DrawRead() => _random.Next(20) switch
    {
        < 2 => KvReadMode.Replica,
        2 => KvReadMode.Quorum,
        _ => KvReadMode.Leader,
    };

    // A scan of one shard shows one moment. If one of two keys put together has that value, the other has its value or a later one. An absent key was
    // deleted since.
    private void CheckWhole(string group, IReadOnlyDictionary<string, Observation> found)
    {
        for (var index = 0; index < Keys - 1; index++)
        {
            var (first, second) = (found.GetValueOrDefault(KeyOf(group, index)), found.GetValueOrDefault(KeyOf(group, index + 1)));
            if (!first.Found || !second.Found)
                continue;
            if ((first.Value[^1] == WithNext && second.Etag <= first.Etag) || (second.Value[^1] == WithPrevious && first.Etag < second.Etag.Predecessor))
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

    // After a failed condition the caller no longer knows the value.
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
