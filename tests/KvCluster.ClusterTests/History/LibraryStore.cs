using System.Text;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>Calls through <see cref="KvClient"/>, which finds leaders and repeats changes under their request ids.</summary>
internal sealed class LibraryStore(KvClient client) : IObservedStore
{
    private readonly Dictionary<uint, Etag> _seen = [];

    public Task<Observation> GetAsync(string key, KvReadMode read) => ObserveAsync(async () =>
    {
        var seen = new Dictionary<uint, Etag>(_seen);
        var got = await client.GetAsync(key, read);
        var observed = got.Found ? new Observation("ok", Found: true, Text(got.Value), got.Etag) : new Observation("ok");
        return At(observed, got.Position) with
        {
            Seen = seen.GetValueOrDefault(got.Position.Shard),
            AgeUs = got.Age is { } age ? (long)age.TotalMicroseconds : -1,
        };
    });

    public async Task<IReadOnlyDictionary<string, Observation>?> ScanAsync(string prefix, KvReadMode read)
    {
        var entries = new Dictionary<string, Observation>();
        var walked = await ObserveAsync(async () =>
        {
            await foreach (var entry in client.ScanAsync(new KvScan { Prefix = Bytes(prefix), Read = read }))
                entries.Add(Text(entry.Key), new Observation("ok", Found: true, Text(entry.Value), entry.Etag));
            return new Observation("ok");
        });
        return walked.Status == "ok" ? entries : null;
    }

    public Task<Observation> PutAsync(string key, string value) =>
        ObserveAsync(async () => Made((await client.PutAsync(key, value)).Position, found: false));

    public Task<Observation> PutIfAsync(string key, string? expected, string value) =>
        ObserveAsync(async () => Made((await client.PutAsync(key, value, Expecting(expected))).Position, found: true));

    public Task<Observation> PutBothIfAsync((string Key, string Value) first, string? expected, (string Key, string Value) second)
    {
        var write = new KvWrite().If(Expecting(expected, first.Key)).Put(Bytes(first.Key), Bytes(first.Value)).Put(Bytes(second.Key), Bytes(second.Value));
        return ObserveAsync(async () => Made((await client.WriteAsync(write)).Position, found: true));
    }

    public Task<Observation> DeleteAsync(string key) => ObserveAsync(async () =>
    {
        var deleted = await client.DeleteAsync(key);
        return At(new Observation("ok", Etag: deleted.Existed ? deleted.Position.Etag : default) { Existed = deleted.Existed }, deleted.Position);
    });

    private Observation Made(ShardPosition position, bool found) => At(new Observation("ok", Found: found, Etag: position.Etag), position);

    private Observation At(Observation observed, ShardPosition position)
    {
        _seen[position.Shard] = _seen.GetValueOrDefault(position.Shard) is var seen && seen > position.Etag ? seen : position.Etag;
        return observed with { Position = position.Etag, Shard = position.Shard };
    }

    private static KvCondition Expecting(string? expected, string key = "") =>
        expected is null ? KvCondition.Absent(Bytes(key)) : KvCondition.ValueEquals(Bytes(expected), Bytes(key));

    private static async Task<Observation> ObserveAsync(Func<Task<Observation>> operation)
    {
        try
        {
            return await operation();
        }
        catch (KvConditionFailedException)
        {
            return Observation.Refused;
        }
        catch (KvException failure)
        {
            return failure.Outcome == ChangeOutcome.NotApplied ? Observation.NotDone : Observation.Unknown;
        }
    }

    private static string Text(ReadOnlyMemory<byte> bytes) => Encoding.UTF8.GetString(bytes.Span);

    private static byte[] Bytes(string text) => Encoding.UTF8.GetBytes(text);
}
