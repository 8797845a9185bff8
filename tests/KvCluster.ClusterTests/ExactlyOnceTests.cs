using System.Globalization;
using System.Text;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>
/// F22 with real processes. Leaders are killed while clients increment counters by conditional puts, each repeated under its request id until its
/// outcome is known. A put applied twice, or applied but reported as a failed condition, leaves a counter at a value that differs from what its
/// callers counted. Here only kills make outcomes unknown; lost answers, transfers and cut tails do so in the simulation.
/// </summary>
[Trait("Turn", "3")]
public sealed class ExactlyOnceTests
{
    private const int Kills = 4;
    private const int CountersPerClient = 4;
    private const int CallersPerCounter = 3;

    [Fact]
    public async Task Increments_WhileLeadersAreKilled_AreEachAppliedOnce()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes");
        using var channel = GrpcChannel.ForAddress(cluster.RouterAddress);
        var status = new V1.Cluster.ClusterClient(channel.Calls());
        await using var direct = ClientOf(cluster, gateway: false);
        await using var routed = ClientOf(cluster, gateway: true);
        Counter[] counters =
        [
            .. Enumerable.Range(0, CountersPerClient).Select(number => new Counter(direct, $"direct-{number}")),
            .. Enumerable.Range(0, CountersPerClient).Select(number => new Counter(routed, $"routed-{number}")),
        ];
        using var enough = new CancellationTokenSource();
        var callers = counters.SelectMany(counter => Enumerable.Repeat(counter, CallersPerCounter))
            .Select(counter => Task.Run(() => counter.IncrementUntilAsync(enough.Token))).ToArray();

        for (var kill = 0; kill < Kills; kill++)
        {
            var before = counters.Select(counter => counter.Succeeded).ToArray();
            await Eventually.TrueAsync(
                () => callers.Any(caller => caller.IsFaulted) || counters.Zip(before).All(pair => pair.First.Succeeded >= pair.Second + 50),
                $"increments before kill {kill}");
            uint? leader = null;
            await Eventually.TrueAsync(
                async () => await RouterStatus.StatusAsync(status) is { } now && (leader = RouterStatus.LeaderOf(now)) is not null, "a node leads");
            var killed = cluster.PidOf($"node-{leader}");
            System.Diagnostics.Process.GetProcessById(killed).Kill();
            await Eventually.TrueAsync(
                () => cluster.PidOf($"node-{leader}") is var pid && pid != killed && LauncherProcess.IsAlive(pid), "the node runs again");
        }
        await enough.CancelAsync();
        await Task.WhenAll(callers);

        foreach (var counter in counters)
            Assert.Equal((counter.Key, counter.Succeeded), (counter.Key, await counter.ReadAsync()));
        await Eventually.TrueAsync(
            async () => await RouterStatus.StatusAsync(status, digest: true) is { } now && RouterStatus.AllReplicasEqual(now),
            "three equal replicas, sessions included");
    }

    // Long enough to notice a dead leader, elect another, and settle the change there.
    private static KvClient ClientOf(LauncherProcess cluster, bool gateway) =>
        new(new KvClientOptions { Endpoints = [cluster.RouterAddress], Gateway = gateway, Timeout = Eventually.Limit });

    private sealed class Counter(KvClient client, string key)
    {
        private int _succeeded;

        public string Key { get; } = key;

        public int Succeeded => Volatile.Read(ref _succeeded);

        public async Task<int> ReadAsync() => ValueOf(await client.GetAsync(Key));

        /// <summary>Throws if an outcome stays unknown, because then nothing could be counted.</summary>
        public async Task IncrementUntilAsync(CancellationToken enough)
        {
            while (!enough.IsCancellationRequested)
            {
                var read = await client.GetAsync(Key, cancellationToken: CancellationToken.None);
                var unchanged = read.Found ? KvCondition.EtagEquals(read.Etag) : KvCondition.Absent();
                try
                {
                    await client.PutAsync(Key, (ValueOf(read) + 1).ToString(CultureInfo.InvariantCulture), unchanged, CancellationToken.None);
                    Interlocked.Increment(ref _succeeded);
                }
                catch (KvConditionFailedException)
                {
                    // Another caller incremented the counter first. The next read shows its value.
                }
            }
        }

        private static int ValueOf(GetResult read) => read.Found ? int.Parse(Encoding.UTF8.GetString(read.Value.Span), CultureInfo.InvariantCulture) : 0;
    }
}
