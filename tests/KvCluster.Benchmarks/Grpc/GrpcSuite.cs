// Suite "grpc": what a call costs our stack, beside a client and a server that do no more than the frame. All processes live through all
// windows, so that their code is compiled; ours and the bare one take turns, so that what else the machine does hits both; a ratio
// compares windows that follow each other.

namespace KvCluster.Benchmarks.Grpc;

/// <summary>Unary and duplex echo at several numbers of callers, client and server in processes of their own.</summary>
internal static class GrpcSuite
{
    public const string Bare = "bare";

    private const string Suite = "grpc";
    private const string Ours = "kvcluster";

    private static readonly int[] Callers = [1, 64, 256];

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var rows = new List<BenchmarkRow>();
        foreach (var isDuplex in (bool[])[false, true])
        {
            foreach (var callers in Callers)
                rows.AddRange(await MeasureAsync(isDuplex, callers, quick, progress, cancellation));
        }
        return rows;
    }

    private static async Task<List<BenchmarkRow>> MeasureAsync(bool isDuplex, int callers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var workload = $"{(isDuplex ? "duplex" : "unary")} echo, {callers} {(callers == 1 ? "caller" : "callers")}";
        using var bareServer = await EchoServer.StartAsync(Bare, cancellation);
        using var ourServer = await EchoServer.StartAsync(Ours, cancellation);
        using var bare = new EchoCaller(new EchoPlan(Bare, isDuplex, callers, bareServer.Port, bareServer.Process));
        using var server = new EchoCaller(new EchoPlan(Bare, isDuplex, callers, ourServer.Port, ourServer.Process));
        using var client = new EchoCaller(new EchoPlan(Ours, isDuplex, callers, bareServer.Port, bareServer.Process));
        using var both = new EchoCaller(new EchoPlan(Ours, isDuplex, callers, ourServer.Port, ourServer.Process));
        EchoCaller[] turns = [bare, server, client, both];
        progress($"{workload}: warming up");
        foreach (var caller in turns)
            await caller.RunWindowAsync(quick ? 1000 : 3000, cancellation);
        for (var run = 1; run <= (quick ? 3 : 9); run++)
        {
            progress($"{workload}: run {run}");
            foreach (var caller in turns)
                caller.Results.Add(await caller.RunWindowAsync(quick ? 500 : 1000, cancellation));
        }
        return
        [
            Row(Bare, "op/s", bare.Results.Select(result => result.PerSecond)),
            Row(Ours, "op/s", both.Results.Select(result => result.PerSecond)),
            Row(Bare, "server us/op", bare.Results.Select(result => result.ServerCpuMicroseconds)),
            Row(Ours, "server us/op", server.Results.Select(result => result.ServerCpuMicroseconds)),
            Row(Ours, "server ratio", server.Results.Zip(bare.Results, (mine, its) => mine.ServerCpuMicroseconds / its.ServerCpuMicroseconds)),
            Row(Bare, "client us/op", bare.Results.Select(result => result.ClientCpuMicroseconds)),
            Row(Ours, "client us/op", client.Results.Select(result => result.ClientCpuMicroseconds)),
            Row(Ours, "client ratio", client.Results.Zip(bare.Results, (mine, its) => mine.ClientCpuMicroseconds / its.ClientCpuMicroseconds)),
            Row(Bare, "client bytes/op", bare.Results.Select(result => result.ClientBytes)),
            Row(Ours, "client bytes/op", client.Results.Select(result => result.ClientBytes)),
        ];

        BenchmarkRow Row(string system, string unit, IEnumerable<double> values) => BenchmarkRow.Of(Suite, workload, system, unit, [.. values]);
    }
}
