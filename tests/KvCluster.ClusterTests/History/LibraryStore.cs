using System.Text;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>Through <see cref="KvClient"/>, which finds leaders and repeats changes by their request ids.</summary>
internal sealed class LibraryStore(KvClient client) : IObservedStore
{
    public Task<Observation> GetAsync(string key) => ObserveAsync(async () =>
    {
        var got = await client.GetAsync(key);
        return new Observation("ok", got.Found, got.Found ? Encoding.UTF8.GetString(got.Value.Span) : "", got.Found ? got.Etag.ToString() : "");
    });

    public Task<Observation> PutAsync(string key, string value) =>
        ObserveAsync(async () => new Observation("ok", Etag: (await client.PutAsync(key, value)).Etag.ToString()));

    public Task<Observation> PutIfAsync(string key, string? expected, string value)
    {
        var condition = expected is null ? KvCondition.Absent() : KvCondition.ValueEquals(Encoding.UTF8.GetBytes(expected));
        return ObserveAsync(async () => new Observation("ok", Found: true, Etag: (await client.PutAsync(key, value, condition)).Etag.ToString()));
    }

    public Task<Observation> DeleteAsync(string key) => ObserveAsync(async () =>
    {
        var deleted = await client.DeleteAsync(key);
        return new Observation("ok", Etag: deleted.Existed ? deleted.Position.Etag.ToString() : "");
    });

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
}
