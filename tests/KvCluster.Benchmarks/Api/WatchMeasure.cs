using System.Buffers.Binary;
using System.Diagnostics;
using System.Globalization;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Api;

/// <summary>
/// How late watchers are: many prefixes, each with a watcher, and some watchers that see all, while changes come at a steady rate. A change is committed, as
/// its caller knows it, when its put is answered; an event that comes before that answer is not late at all.
/// </summary>
internal static class WatchMeasure
{
    private const int Prefixes = 1_000;
    private const int WatchersOfAll = 5;
    private const int ChangesPerSecond = 5_000;
    private const int IdleWatchers = 10_000;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var (runs, duration) = quick ? (1, TimeSpan.FromSeconds(3)) : (3, TimeSpan.FromSeconds(10));
        var (p50, p99, cpu) = (new List<double>(), new List<double>(), new List<double>());
        for (var run = 0; run < runs; run++)
        {
            var outcome = await RunOnceAsync(servers, duration, cancellation);
            p50.Add(outcome.P50Ms);
            p99.Add(outcome.P99Ms);
            cpu.Add(outcome.CpuUs);
            progress($"run {run + 1} of {runs}: {outcome.Changes:N0} changes to {Prefixes + WatchersOfAll} watchers, p50 {outcome.P50Ms:F2} ms, p99 "
                + $"{outcome.P99Ms:F2} ms from committed to received, {outcome.CpuUs:F0} us server CPU a change");
        }
        var workload = $"watch: {Prefixes:N0} prefixes with a watcher each, {WatchersOfAll} of all, {ChangesPerSecond:N0} changes/s, committed to received";
        return
        [
            BenchmarkRow.Of(ApiSuite.Name, $"{workload}, p50", "kvcluster", "ms", p50),
            BenchmarkRow.Of(ApiSuite.Name, $"{workload}, p99", "kvcluster", "ms", p99),
            BenchmarkRow.Of(ApiSuite.Name, workload, "kvcluster", "server CPU us/op", cpu),
            BenchmarkRow.Of(
                ApiSuite.Name, $"watch: {IdleWatchers:N0} idle watchers on one node, memory of each", "kvcluster", "bytes",
                [await IdleBytesAsync(servers, progress, cancellation)]),
        ];
    }

    // What the servers' memory grows by, which is that of the node with the watchers.
    private static async Task<double> IdleBytesAsync(KvServers servers, Action<string> progress, CancellationToken cancellation)
    {
        await servers.FindLeaderAsync(cancellation);
        // A connection takes 1,024 calls. A channel that needs several opens more than that, and each has only a share of the calls that a node allows.
        var channels = Enumerable.Range(0, IdleWatchers / 250).Select(_ => GrpcChannel.ForAddress(servers.LeaderAddress)).ToArray();
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellation);
        var before = ResidentBytes(servers.Processes);
        // One on each connection first. A channel that does not know yet how many calls its connection takes opens further ones for what comes meanwhile.
        Task[] watching = [.. await BeginAsync(0, channels.Length), .. await BeginAsync(channels.Length, IdleWatchers - channels.Length)];
        // Bookmarks are being sent.
        await Task.Delay(TimeSpan.FromSeconds(5), cancellation);
        var bytes = (double)(ResidentBytes(servers.Processes) - before) / IdleWatchers;
        progress($"{IdleWatchers:N0} idle watchers: {bytes:N0} bytes each");
        await ended.CancelAsync();
        await Task.WhenAll(watching);
        foreach (var channel in channels)
            channel.Dispose();
        return bytes;

        async Task<Task[]> BeginAsync(int first, int count)
        {
            using var begun = new CountdownEvent(count);
            var some = Enumerable.Range(first, count)
                .Select(number => WatchAsync(new Kv.KvClient(channels[number % channels.Length]), $"idle/{number}/", [], begun, ended.Token)).ToArray();
            await BegunAsync(begun, some, cancellation);
            return some;
        }
    }

    // A watch that is refused ends the wait.
    private static async Task BegunAsync(CountdownEvent begun, Task[] watching, CancellationToken cancellation)
    {
        while (!begun.IsSet)
        {
            if (watching.FirstOrDefault(static one => one.IsCompleted) is { } failed)
                await failed;
            await Task.Delay(10, cancellation);
        }
    }

    private static long ResidentBytes(IEnumerable<int> processes) => processes.Sum(static process => Process.GetProcessById(process).WorkingSet64);

    private static async Task<Outcome> RunOnceAsync(KvServers servers, TimeSpan duration, CancellationToken cancellation)
    {
        await servers.FindLeaderAsync(cancellation);
        using var channel = GrpcChannel.ForAddress(servers.LeaderAddress);
        await using var client = new KvClient(servers.RouterAddress);
        var changes = (int)(duration.TotalSeconds * ChangesPerSecond);
        var (answered, lates) = (new long[changes], new List<(int Change, long Received)>[Prefixes + WatchersOfAll]);
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellation);
        var watching = new Task[lates.Length];
        var begun = new CountdownEvent(lates.Length);
        for (var watcher = 0; watcher < lates.Length; watcher++)
        {
            var prefix = watcher < Prefixes ? PrefixOf(watcher) : "";
            watching[watcher] = WatchAsync(new Kv.KvClient(channel), prefix, lates[watcher] = [], begun, ended.Token);
        }
        await BegunAsync(begun, watching, cancellation);
        var cpuBefore = ServerCpu.MicrosecondsOf(servers.Processes);
        await OpenLoop.RunAsync(ChangesPerSecond, changes, change => PutOneAsync(client, change, answered, cancellation), cancellation);
        await ReceiveAllAsync(lates, changes, cancellation);
        var cpu = ServerCpu.MicrosecondsOf(servers.Processes) - cpuBefore;
        await ended.CancelAsync();
        await Task.WhenAll(watching);
        var all = lates.SelectMany(static one => one).Select(one => Math.Max(0, one.Received - answered[one.Change])).Order().ToArray();
        return new Outcome(changes, Milliseconds(all[all.Length / 2]), Milliseconds(all[(int)(all.Length * 0.99)]), cpu / changes);
    }

    private static async Task PutOneAsync(KvClient client, int change, long[] answered, CancellationToken cancellation)
    {
        var value = new byte[100];
        BinaryPrimitives.WriteInt32LittleEndian(value, change);
        await client.PutAsync(System.Text.Encoding.UTF8.GetBytes($"{PrefixOf(change % Prefixes)}key"), value, cancellationToken: cancellation);
        answered[change] = Stopwatch.GetTimestamp();
    }

    private static async Task WatchAsync(
        Kv.KvClient kv, string prefix, List<(int Change, long Received)> received, CountdownEvent begun, CancellationToken cancellation)
    {
        using var stream = kv.Watch(new WatchRequest { Prefix = ByteString.CopyFromUtf8(prefix) }, cancellationToken: cancellation);
        try
        {
            await stream.ResponseStream.MoveNext(cancellation);
            begun.Signal();
            while (await stream.ResponseStream.MoveNext(cancellation))
            {
                var now = Stopwatch.GetTimestamp();
                lock (received)
                    received.AddRange(stream.ResponseStream.Current.Events.Select(one => (BinaryPrimitives.ReadInt32LittleEndian(one.Value.Span), now)));
            }
        }
        catch (Exception end) when (end is OperationCanceledException or RpcException && cancellation.IsCancellationRequested)
        {
            // The measurement is over. A read that begins while its call is being cancelled is told that the stream was aborted, which is no CANCELLED.
        }
    }

    // Each change goes to the watcher of its prefix and to those of all. None may be missing.
    private static async Task ReceiveAllAsync(List<(int Change, long Received)>[] received, long changes, CancellationToken cancellation)
    {
        for (var started = Stopwatch.GetTimestamp(); received.Sum(static one => (long)Count(one)) < changes * (1 + WatchersOfAll);)
        {
            if (Stopwatch.GetElapsedTime(started) > TimeSpan.FromSeconds(30))
                throw new TimeoutException($"{received.Sum(static one => (long)Count(one)):N0} of {changes * (1 + WatchersOfAll):N0} events were received.");
            await Task.Delay(10, cancellation);
        }
    }

    private static int Count(List<(int Change, long Received)> received)
    {
        lock (received)
            return received.Count;
    }

    private static string PrefixOf(int number) => string.Create(CultureInfo.InvariantCulture, $"watched/{number:D4}/");

    private static double Milliseconds(long ticks) => ticks * 1000.0 / Stopwatch.Frequency;

    private readonly record struct Outcome(int Changes, double P50Ms, double P99Ms, double CpuUs);
}
