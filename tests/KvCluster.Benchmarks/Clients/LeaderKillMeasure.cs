using System.Diagnostics;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// Puts of many callers while the leader's process is killed: how many fail, and how long the longest takes. The library gives each put a request id, so that
/// it repeats those whose answer was lost.
/// </summary>
internal static class LeaderKillMeasure
{
    public const string Failed = "failed puts";
    public static readonly string Workload = $"put, {Callers} callers with request ids, kill -9 of the leader";

    private const int Callers = 64;

    private static readonly TimeSpan Before = TimeSpan.FromSeconds(2);
    private static readonly TimeSpan After = TimeSpan.FromSeconds(10);

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        await using var client = new KvClient(servers.RouterAddress);
        var (keys, values) = (new KeySpace(seed: 7), ManyKeys.Values(ClientsSuite.ValueBytes));
        var (failed, longest) = (new List<double>(), new List<double>());
        var runs = quick ? 1 : 3;
        for (var run = 0; run < runs; run++)
        {
            await servers.ReplicatedAsync(cancellation);
            var enough = new Enough();
            var calling = Task.WhenAll(Enumerable.Range(0, Callers).Select(caller => Task.Run(() => CallAsync(caller, enough), cancellation)));
            await Task.Delay(Before, cancellation);
            servers.KillLeader();
            await Task.Delay(After, cancellation);
            enough.IsReached = true;
            var outcomes = await calling;
            failed.Add(outcomes.Sum(static one => one.Failed));
            longest.Add(outcomes.Max(static one => one.LongestMilliseconds));
            progress($"{Workload}, run {run + 1} of {runs}: {failed[^1]:N0} of {outcomes.Sum(static one => one.Calls):N0} puts failed, the longest took "
                + $"{longest[^1]:F0} ms");
        }
        return
        [
            BenchmarkRow.Of(ClientsSuite.Name, Workload, ClientsSuite.Ours, Failed, failed),
            BenchmarkRow.Of(ClientsSuite.Name, Workload, ClientsSuite.Ours, "longest put, ms", longest),
        ];

        async Task<Outcome> CallAsync(int caller, Enough enough)
        {
            var (calls, failures, most) = (0, 0, 0.0);
            for (var number = caller * 7919; !enough.IsReached; number++)
            {
                var begun = Stopwatch.GetTimestamp();
                try
                {
                    await client.PutAsync(keys.Key(number).Memory, values[number & (values.Length - 1)], cancellationToken: cancellation);
                }
                catch (KvException failure)
                {
                    failures++;
                    progress($"{Workload}: {failure.Message}");
                }
                calls++;
                most = Math.Max(most, Stopwatch.GetElapsedTime(begun).TotalMilliseconds);
            }
            return new Outcome(calls, failures, most);
        }
    }

    /// <summary>Whether callers begin no more calls.</summary>
    private sealed class Enough
    {
        private volatile bool _isReached;

        public bool IsReached
        {
            get => _isReached;
            set => _isReached = value;
        }
    }

    private readonly record struct Outcome(int Calls, int Failed, double LongestMilliseconds);
}
