using System.Diagnostics;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>The side of a client process: runs callers in windows and measures the cost of a call in both processes. Between windows it is idle.</summary>
internal sealed class EchoLoad : IDisposable
{
    /// <summary>The maximum number of connections, and of streams in a duplex run. Each has its share of the callers.</summary>
    private const int ConnectionsMax = 4;

    // For the callers to start one after the other and reach a steady state.
    private static readonly TimeSpan LeadIn = TimeSpan.FromMilliseconds(150);

    private readonly EchoPlan _plan;
    private readonly IEchoClient[] _clients;
    private readonly Process _server;
    private readonly Process _self = Process.GetCurrentProcess();

    public EchoLoad(EchoPlan plan)
    {
        _plan = plan;
        _clients = new IEchoClient[Math.Min(plan.Callers, ConnectionsMax)];
        for (var i = 0; i < _clients.Length; i++)
            _clients[i] = plan.System == GrpcSuite.Bare ? new BareClient(plan.Port) : new OurClient(plan.Port);
        _server = Process.GetProcessById(plan.ServerProcess);
    }

    /// <summary>Runs all callers for this long and returns the cost of a call.</summary>
    public async Task<EchoResult> RunWindowAsync(TimeSpan length)
    {
        var counts = new EchoCount[_plan.IsDuplex ? _clients.Length : _plan.Callers];
        var running = new List<Task>();
        using var stop = new CancellationTokenSource();
        for (var i = 0; i < counts.Length; i++)
        {
            var client = _clients[i % _clients.Length];
            var callers = (_plan.Callers / _clients.Length) + (i < _plan.Callers % _clients.Length ? 1 : 0);
            var count = counts[i] = new EchoCount();
            running.Add(Task.Run(() => _plan.IsDuplex ? client.ExchangeAsync(callers, count, stop.Token) : client.CallAsync(count, stop.Token)));
        }
        await Task.Delay(LeadIn);
        var before = Take(counts);
        await Task.Delay(length);
        var after = Take(counts);
        await stop.CancelAsync();
        await Task.WhenAll(running);
        double calls = after.Calls - before.Calls;
        return new EchoResult(
            calls / Stopwatch.GetElapsedTime(before.Timestamp, after.Timestamp).TotalSeconds,
            (after.ClientCpu - before.ClientCpu).TotalMicroseconds / calls,
            (after.ServerCpu - before.ServerCpu).TotalMicroseconds / calls,
            (after.Allocated - before.Allocated) / calls);
    }

    public void Dispose()
    {
        foreach (var client in _clients)
            client.Dispose();
        _server.Dispose();
        _self.Dispose();
    }

    private Moment Take(EchoCount[] counts)
    {
        _self.Refresh();
        _server.Refresh();
        return new Moment(
            Stopwatch.GetTimestamp(), counts.Sum(count => count.Calls), _self.TotalProcessorTime, _server.TotalProcessorTime, GC.GetTotalAllocatedBytes());
    }

    private readonly record struct Moment(long Timestamp, long Calls, TimeSpan ClientCpu, TimeSpan ServerCpu, long Allocated);
}
