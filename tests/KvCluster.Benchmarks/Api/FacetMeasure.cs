using System.Diagnostics;
using System.Text;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Api;

/// <summary>
/// Sets of real tags: how fast they are loaded, and how long the intersection of the three largest takes, with the counts of all tags in it. The time of a call
/// is that of a single caller, so it includes the way to the node and back, which a SetCount alone shows.
/// </summary>
internal static class FacetMeasure
{
    private const int MembersPerCall = 1_000;
    private const string Tags = "tag/";

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (await PackageFiles.ReadAsync(progress, PackageFiles.Tags) is not { } text)
            return [];
        await using var client = new KvClient(servers.RouterAddress);
        var sets = SetsIn(text);
        var began = Stopwatch.GetTimestamp();
        await Parallel.ForEachAsync(sets, new ParallelOptions { MaxDegreeOfParallelism = 64, CancellationToken = cancellation }, async (set, token) =>
        {
            foreach (var members in set.Value.Chunk(MembersPerCall))
                await client.Sets.AddAsync(set.Key, members, cancellationToken: token);
        });
        var members = sets.Sum(static set => set.Value.Count);
        var rate = members / Stopwatch.GetElapsedTime(began).TotalSeconds;
        progress($"{members:N0} members of {sets.Count:N0} sets added, {rate:N0}/s");
        KvKey[] largest = [.. sets.Where(static set => set.Key.StartsWith(Tags, StringComparison.Ordinal))
            .OrderByDescending(static set => set.Value.Count).Take(3).Select(static set => (KvKey)set.Key)];
        var facets = new KvIntersection { Keys = largest, FacetPrefixes = [Tags], FacetsMax = 20, Limit = 100 };
        var calls = quick ? 200 : 1_000;
        var rows =
            new List<BenchmarkRow> { BenchmarkRow.Of(ApiSuite.Name, "SetAdd of tags.tsv, up to 1,000 members a call", "kvcluster", "members/s", [rate]) };
        rows.Add(
            await MeasureAsync("SetCount, 1 caller", calls, async () => await client.Sets.CountAsync(largest[0], cancellationToken: cancellation), progress));
        rows.Add(await MeasureAsync(
            "SetIntersect of the three largest tags, 1 caller", calls,
            async () => await client.Sets.IntersectAsync(facets with { FacetPrefixes = [] }, cancellation), progress));
        rows.Add(await MeasureAsync(
            "SetIntersect of the three largest tags with the counts of all tags, 1 caller", calls,
            async () => await client.Sets.IntersectAsync(facets, cancellation), progress));
        return rows;
    }

    private static async Task<BenchmarkRow> MeasureAsync(string workload, int calls, Func<Task> call, Action<string> progress)
    {
        var times = new List<double>(calls);
        for (var done = -calls / 4; done < calls; done++)
        {
            var began = Stopwatch.GetTimestamp();
            await call();
            // The first ones are only to warm up.
            if (done >= 0)
                times.Add(Stopwatch.GetElapsedTime(began).TotalMilliseconds);
        }
        var row = BenchmarkRow.Of(ApiSuite.Name, workload, "kvcluster", "ms", times);
        progress($"{workload}: {row.Median:F3} ms");
        return row;
    }

    private static Dictionary<string, List<KvKey>> SetsIn(ReadOnlyMemory<byte> text)
    {
        var sets = new Dictionary<string, List<KvKey>>(StringComparer.Ordinal);
        foreach (var (set, member) in PackageFiles.RecordsIn(text))
        {
            var key = Encoding.UTF8.GetString(set.Span);
            if (!sets.TryGetValue(key, out var members))
                sets.Add(key, members = []);
            members.Add(member);
        }
        return sets;
    }
}
