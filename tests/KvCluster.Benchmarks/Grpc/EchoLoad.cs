using System.Diagnostics;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>Keeps callers busy and measures what a call costs both processes.</summary>
internal static class EchoLoad
{
    /// <summary>Connections, and streams of a duplex run; each has its share of the callers.</summary>
    public const int ConnectionsMax = 4;

    public static async Task<EchoResult> RunAsync(EchoPlan plan)
    {
        var connections = Math.Min(plan.Callers, ConnectionsMax);
        var counts = new EchoCount[plan.IsDuplex ? connections : plan.Callers];
        var running = new List<Task>();
        using var stop = new CancellationTokenSource();
        var clients = new List<IEchoClient>();
        for (var i = 0; i < connections; i++)
            clients.Add(plan.System == GrpcSuite.Bare ? new BareClient(plan.Port) : new OurClient(plan.Port));
        for (var i = 0; i < counts.Length; i++)
        {
            var client = clients[i % connections];
            var count = counts[i] = new EchoCount();
            running.Add(Task.Run(() => plan.IsDuplex
                ? client.ExchangeAsync((plan.Callers / connections) + (i < plan.Callers % connections ? 1 : 0), count, stop.Token)
                : client.CallAsync(count, stop.Token)));
        }
        using var server = Process.GetProcessById(plan.ServerProcess);
        using var self = Process.GetCurrentProcess();
        await Task.Delay(TimeSpan.FromSeconds(plan.WarmSeconds));
        var before = Take(counts, self, server);
        await Task.Delay(TimeSpan.FromSeconds(plan.MeasureSeconds));
        var after = Take(counts, self, server);
        await stop.CancelAsync();
        await Task.WhenAll(running);
        foreach (var client in clients)
            client.Dispose();
        double calls = after.Calls - before.Calls;
        return new EchoResult(
            calls / Stopwatch.GetElapsedTime(before.Timestamp, after.Timestamp).TotalSeconds,
            (after.ClientCpu - before.ClientCpu).TotalMicroseconds / calls,
            (after.ServerCpu - before.ServerCpu).TotalMicroseconds / calls,
            (after.Allocated - before.Allocated) / calls);
    }

    private static Moment Take(EchoCount[] counts, Process self, Process server)
    {
        self.Refresh();
        server.Refresh();
        return new Moment(Stopwatch.GetTimestamp(), counts.Sum(count => count.Calls), self.TotalProcessorTime, server.TotalProcessorTime, GC.GetTotalAllocatedBytes());
    }

    private readonly record struct Moment(long Timestamp, long Calls, TimeSpan ClientCpu, TimeSpan ServerCpu, long Allocated);
}
