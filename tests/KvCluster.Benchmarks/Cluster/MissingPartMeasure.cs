using System.Globalization;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// Puts per second without a part of the cluster, relative to those with it. Each window is between two with all parts, so that a machine that slows
/// down, and nodes that are still warming up, affect both sides.
/// KV_ETCD_GONE: how many seconds etcd is unavailable before the window without it (default 300, with --quick none).
/// </summary>
internal static class MissingPartMeasure
{
    private const int Callers = 256;
    private static readonly TimeSpan SlowWay = TimeSpan.FromMilliseconds(50);

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(
        int windows, TimeSpan window, TimeSpan etcdGone, Action<string> progress, CancellationToken cancellation)
    {
        var gone = TimeSpan.FromSeconds(double.TryParse(Environment.GetEnvironmentVariable("KV_ETCD_GONE"), CultureInfo.InvariantCulture, out var seconds)
            ? seconds
            : etcdGone.TotalSeconds);
        var ratios = new Dictionary<string, List<double>>();
        await using (var direct = await Puts.StartAsync(FaultSuite.Nodes, network: null, window, cancellation))
        await using (var alone = await Puts.StartAsync(1, network: null, window, cancellation))
        {
            for (var number = 0; number < windows; number++)
            {
                var dead = (await direct.Servers.AllLedAsync(except: 0, cancellation)).First(node => node.Value == 0).Key;
                Add("follower dead to alive", await direct.CompareAsync(
                    () => direct.Servers.KillAsync(dead),
                    async () =>
                    {
                        direct.Servers.Start(dead);
                        await direct.Servers.AllLedAsync(except: 0, cancellation);
                    }));
                Add($"etcd gone for {gone.TotalSeconds:F0} s and a window to there", await direct.CompareAsync(
                    async () =>
                    {
                        await direct.Servers.Etcd.KillAsync(0);
                        await Task.Delay(gone, cancellation);
                    },
                    () => direct.Servers.Etcd.RestartAsync(static () => { })));
                Add("3 replicas to 1", await direct.MeasureAsync() / await alone.MeasureAsync());
            }
        }

        var network = new Network();
        await using (var relayed = await Puts.StartAsync(FaultSuite.Nodes, network, window, cancellation))
        {
            for (var number = 0; number < windows; number++)
            {
                var led = await relayed.Servers.AllLedAsync(except: 0, cancellation);
                var (leader, follower) = (led.First(node => node.Value == 1).Key, led.First(node => node.Value == 0).Key);
                Add($"follower {SlowWay.TotalMilliseconds:F0} ms away a piece to near", await relayed.CompareAsync(
                    () => network.Delay(leader, follower, SlowWay), network.Heal));
                Add("follower cut off to reached", await relayed.CompareAsync(() => network.Cut(leader, follower), network.Heal));
            }
        }

        return [.. ratios.Select(entry => BenchmarkRow.Of(FaultSuite.Name, $"put, {Callers} callers: {entry.Key}", FaultSuite.Ours, "ratio", entry.Value))];

        void Add(string what, double ratio)
        {
            if (!ratios.TryGetValue(what, out var values))
                ratios[what] = values = [];
            values.Add(ratio);
            progress($"puts/s, {what}, window {values.Count} of {windows}: {ratio:F2}");
        }
    }

    /// <summary>A cluster and a client that puts into it.</summary>
    private sealed class Puts(NodeServers servers, KvClient client, TimeSpan window, CancellationToken cancellation) : IAsyncDisposable
    {
        private readonly KeySpace _keys = new(seed: 11);

        public NodeServers Servers => servers;

        public static async Task<Puts> StartAsync(int nodes, Network? network, TimeSpan window, CancellationToken cancellation)
        {
            var servers = await NodeServers.StartAsync(nodes, shards: 1, cancellation, network);
            var puts = new Puts(servers, new KvClient(new KvClientOptions { Endpoints = servers.Endpoints }), window, cancellation);
            // Warms up connections, compiled code, and the first segments.
            await puts.MeasureAsync();
            return puts;
        }

        /// <summary>Puts per second while a part is missing, relative to those before and after it.</summary>
        public async Task<double> CompareAsync(Func<Task> take, Func<Task> giveBack)
        {
            var before = await MeasureAsync();
            await take();
            var without = await MeasureAsync();
            await giveBack();
            return 2 * without / (before + await MeasureAsync());
        }

        public Task<double> CompareAsync(Action take, Action giveBack) => CompareAsync(
            () =>
            {
                take();
                return Task.CompletedTask;
            },
            () =>
            {
                giveBack();
                return Task.CompletedTask;
            });

        /// <summary>Puts per second over a window.</summary>
        public async Task<double> MeasureAsync() => (await ClosedLoop.RunAsync(
            Callers, window, servers.Processes,
            async (_, number) => await client.PutAsync(_keys.Key(number).Memory, _keys.Value(number).Memory), cancellation)).OperationsPerSecond;

        public async ValueTask DisposeAsync()
        {
            await client.DisposeAsync();
            await servers.DisposeAsync();
        }
    }
}
