using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>Contradictions that a caller detects by itself, because no check of single keys does, on a store in memory that tears writes of two keys.</summary>
public sealed class HistoryWorkerTests
{
    // Far more than necessary.
    private const int Operations = 20_000;

    [Theory]
    [InlineData(true, true, false)]
    [InlineData(true, false, true)]
    [InlineData(false, true, true)]
    public async Task Next_TornWritesOfTwoKeys_ContradictScans(bool first, bool second, bool contradicts)
    {
        var worker = new HistoryWorker(client: 1, "h0", new TearingStore(first, second));
        for (var number = 0; number < Operations && worker.Contradiction is null; number++)
            await worker.NextAsync();
        Assert.Equal(contradicts, worker.Contradiction is not null);
    }

    /// <summary>Makes only the chosen puts of a write, and reports both as made.</summary>
    private sealed class TearingStore(bool first, bool second) : IObservedStore
    {
        private readonly Dictionary<string, Observation> _entries = [];
        private ulong _change;

        public Task<Observation> GetAsync(string key, KvReadMode read) => Task.FromResult(Find(key));

        public Task<IReadOnlyDictionary<string, Observation>?> ScanAsync(string prefix, KvReadMode read) =>
            Task.FromResult<IReadOnlyDictionary<string, Observation>?>(
                _entries.Where(entry => entry.Key.StartsWith(prefix, StringComparison.Ordinal)).ToDictionary());

        public Task<Observation> PutAsync(string key, string value) => Task.FromResult(Put(key, value, isMade: true));

        public Task<Observation> PutIfAsync(string key, string? expected, string value) =>
            Task.FromResult(Holds(key, expected) ? Put(key, value, isMade: true) : Observation.Refused);

        public Task<Observation> PutBothIfAsync((string Key, string Value) one, string? expected, (string Key, string Value) other)
        {
            if (!Holds(one.Key, expected))
                return Task.FromResult(Observation.Refused);
            Put(one.Key, one.Value, first);
            return Task.FromResult(Put(other.Key, other.Value, second));
        }

        public Task<Observation> DeleteAsync(string key)
        {
            var existed = _entries.Remove(key);
            _change++;
            return Task.FromResult(new Observation("ok", Etag: existed ? new Etag(1, _change) : Etag.None));
        }

        private Observation Find(string key) => _entries.GetValueOrDefault(key, Observation.Refused);

        private bool Holds(string key, string? expected) => Find(key) is var found && (found.Found ? found.Value : null) == expected;

        private Observation Put(string key, string value, bool isMade)
        {
            var entry = new Observation("ok", Found: true, value, new Etag(1, ++_change));
            if (isMade)
                _entries[key] = entry;
            return entry;
        }
    }
}
