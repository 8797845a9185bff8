using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;
using KvCluster.Processes;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// Puts per second with a slow disk under one node, the leader's or a follower's, relative to those with three equal disks. Each window is between
/// two without. It begins five seconds after the disk became slow, when a leader has had time to transfer. Also how often the leadership moves while
/// the disk of the first leader is slow and normal by turns: once, away from it. Disks are slowed by badfs, a file system that delays writes.
/// </summary>
internal static class SlowDiskMeasure
{
    private const int Callers = 256;
    private static readonly int[] DelaysMs = [10, 50];
    private static readonly TimeSpan LeaveTime = TimeSpan.FromSeconds(5);

    // Long enough for a leader to transfer away from a slow disk, and for a disk to be judged healthy again.
    private static readonly TimeSpan Turn = TimeSpan.FromSeconds(15);

    /// <param name="windows">The number of windows for each slow disk.</param>
    /// <param name="window">The length of a window.</param>
    /// <param name="turns">The number of turns of a disk that is slow, then normal.</param>
    /// <param name="progress">Gets each number.</param>
    /// <param name="cancellation">Ends the measurement.</param>
    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(
        int windows, TimeSpan window, int turns, Action<string> progress, CancellationToken cancellation)
    {
        if (Tools.Find("badfs") is not { } badfs || Tools.Find("fusermount3") is not { } unmount)
        {
            progress("badfs, which slows a disk down, or fusermount3: not on PATH and not beside the repository; slow disks left out");
            return [];
        }

        using var folder = new TemporaryDirectory();
        var (source, mount, rules) = (Path.Combine(folder.Path, "source"), Path.Combine(folder.Path, "mount"), Path.Combine(folder.Path, "rules"));
        Directory.CreateDirectory(source);
        Directory.CreateDirectory(mount);
        await File.WriteAllTextAsync(rules, "", cancellation);
        using var process = Process.Start(new ProcessStartInfo(badfs, [source, mount, rules, "-f"]))!;
        try
        {
            await AwaitMountAsync(mount, process, cancellation);
            return await MeasureAsync(mount, rules, windows, window, turns, progress, cancellation);
        }
        finally
        {
            await Tools.RunAsync(unmount, ["-u", "-z", mount]);
            await process.WaitForExitAsync(CancellationToken.None);
        }
    }

    private static async Task AwaitMountAsync(string mount, Process process, CancellationToken cancellation)
    {
        while (!(await File.ReadAllTextAsync("/proc/mounts", cancellation)).Contains($" {mount} ", StringComparison.Ordinal))
        {
            if (process.HasExited)
                throw new InvalidOperationException($"badfs ended with {process.ExitCode} before it had mounted {mount}.");
            await Task.Delay(20, cancellation);
        }
    }

    private static async Task<IReadOnlyList<BenchmarkRow>> MeasureAsync(
        string mount, string rules, int windows, TimeSpan window, int turns, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(FaultSuite.Nodes, shards: 1, cancellation, data: mount);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var keys = new KeySpace(seed: 13);
        var rows = new List<BenchmarkRow>();
        // Warms up connections, compiled code, and the first segments.
        await PutsAsync(window);
        foreach (var delay in DelaysMs)
        {
            foreach (var leads in (bool[])[true, false])
            {
                var ratios = new List<double>();
                for (var run = 0; run < windows; run++)
                {
                    var before = await PutsAsync(window);
                    var node = (await servers.AllLedAsync(except: 0, cancellation)).First(node => node.Value == (leads ? 1 : 0)).Key;
                    await SlowAsync(node, delay);
                    await PutsAsync(LeaveTime);
                    var slowed = await PutsAsync(window);
                    await WellAsync();
                    // Meanwhile lagging data is written, and the disk is judged healthy again.
                    await PutsAsync(3 * LeaveTime);
                    ratios.Add(2 * slowed / (before + await PutsAsync(window)));
                    progress($"puts/s, slow disk of {delay} ms under {(leads ? "the leader" : "a follower")}, window {run + 1} of {windows}: {ratios[^1]:F2}");
                }

                rows.Add(BenchmarkRow.Of(
                    FaultSuite.Name, $"put, {Callers} callers: slow disk, {delay} ms a write under {(leads ? "the leader" : "a follower")} for 5 s, to none",
                    FaultSuite.Ours, "ratio", ratios));
            }
        }

        var (left, epoch) = await LeaderAsync();
        for (var turn = 0; turn < turns; turn++)
        {
            await SlowAsync(left, DelaysMs[turn % DelaysMs.Length]);
            await PutsAsync(Turn);
            await WellAsync();
            await PutsAsync(Turn);
            progress($"slow and well in turns, turn {turn + 1} of {turns}: the leadership has moved {(await LeaderAsync()).Epoch - epoch} times");
        }

        rows.Add(BenchmarkRow.Of(
            FaultSuite.Name, $"put, {Callers} callers: disk of the first leader slow and well in turns of {Turn.TotalSeconds} s", FaultSuite.Ours, "moves",
            [(await LeaderAsync()).Epoch - epoch]));
        return rows;

        async Task<(int Node, ulong Epoch)> LeaderAsync()
        {
            while (true)
            {
                var node = (await servers.AllLedAsync(except: 0, cancellation)).First(node => node.Value == 1).Key;
                if (await servers.ReplicaAsync(node, cancellation) is { Role: Role.Leader } replica)
                    return (node, replica.Route.Epoch);
            }
        }

        Task SlowAsync(int node, int delayMs) =>
            File.WriteAllTextAsync(rules, string.Create(CultureInfo.InvariantCulture, $"write-delay node-{node}/ {delayMs}\n"), cancellation);

        Task WellAsync() => File.WriteAllTextAsync(rules, "", cancellation);

        async Task<double> PutsAsync(TimeSpan time) => (await ClosedLoop.RunAsync(
            Callers, time, servers.Processes,
            async (_, number) => await client.PutAsync(keys.Key(number).Memory, keys.Value(number).Memory), cancellation)).OperationsPerSecond;
    }
}
