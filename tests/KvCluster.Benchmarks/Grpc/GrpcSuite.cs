// Suite "grpc": the cost of a call as nodes serve and make it, relative to a client and a server that handle only the frame. A ratio compares two
// consecutive windows, ours and the bare one's, in alternating order, so that other load on the machine affects both. Processes live for several windows, so
// that their code is compiled. Then new ones replace them, so that a property of one process is not taken for one of the program.

namespace KvCluster.Benchmarks.Grpc;

/// <summary>Unary and duplex echo with several numbers of callers, client and server in separate processes.</summary>
internal static class GrpcSuite
{
    public const string Bare = "bare";

    private const string Suite = "grpc";
    private const string Ours = "kvcluster";
    private const int WindowMilliseconds = 300;

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
        var servers = new List<(EchoResult Bare, EchoResult Ours)>();
        var clients = new List<(EchoResult Bare, EchoResult Ours)>();
        var ours = new List<EchoResult>();
        for (var generation = 1; generation <= (quick ? 1 : 2); generation++)
        {
            progress($"{workload}: processes {generation}");
            using var bareServer = await EchoServer.StartAsync(Bare, cancellation);
            using var ourServer = await EchoServer.StartAsync(Ours, cancellation);
            using var bare = new EchoCaller(new EchoPlan(Bare, isDuplex, callers, bareServer.Port, bareServer.Process));
            using var server = new EchoCaller(new EchoPlan(Bare, isDuplex, callers, ourServer.Port, ourServer.Process));
            using var client = new EchoCaller(new EchoPlan(Ours, isDuplex, callers, bareServer.Port, bareServer.Process));
            using var both = new EchoCaller(new EchoPlan(Ours, isDuplex, callers, ourServer.Port, ourServer.Process));
            foreach (var caller in (EchoCaller[])[bare, server, client, both])
                await caller.RunWindowAsync(quick ? 1000 : 3000, cancellation);
            for (var run = 0; run < 5; run++)
            {
                servers.Add(await RunPairAsync(bare, server, bareFirst: (generation + run) % 2 == 0, cancellation));
                clients.Add(await RunPairAsync(bare, client, bareFirst: (generation + run) % 2 == 0, cancellation));
            }
            ours.Add(await both.RunWindowAsync(WindowMilliseconds, cancellation));
        }
        return
        [
            Row(Bare, "op/s", clients.Select(pair => pair.Bare.PerSecond)),
            Row(Ours, "op/s", ours.Select(result => result.PerSecond)),
            Row(Bare, "server us/op", servers.Select(pair => pair.Bare.ServerCpuMicroseconds)),
            Row(Ours, "server us/op", servers.Select(pair => pair.Ours.ServerCpuMicroseconds)),
            Row(Ours, "server ratio", servers.Select(pair => pair.Ours.ServerCpuMicroseconds / pair.Bare.ServerCpuMicroseconds)),
            Row(Bare, "client us/op", clients.Select(pair => pair.Bare.ClientCpuMicroseconds)),
            Row(Ours, "client us/op", clients.Select(pair => pair.Ours.ClientCpuMicroseconds)),
            Row(Ours, "client ratio", clients.Select(pair => pair.Ours.ClientCpuMicroseconds / pair.Bare.ClientCpuMicroseconds)),
            Row(Bare, "client bytes/op", clients.Select(pair => pair.Bare.ClientBytes)),
            Row(Ours, "client bytes/op", clients.Select(pair => pair.Ours.ClientBytes)),
        ];

        BenchmarkRow Row(string system, string unit, IEnumerable<double> values) => BenchmarkRow.Of(Suite, workload, system, unit, [.. values]);
    }

    private static async Task<(EchoResult Bare, EchoResult Ours)> RunPairAsync(EchoCaller bare, EchoCaller ours, bool bareFirst, CancellationToken cancellation)
    {
        if (bareFirst)
            return (await bare.RunWindowAsync(WindowMilliseconds, cancellation), await ours.RunWindowAsync(WindowMilliseconds, cancellation));
        var second = await ours.RunWindowAsync(WindowMilliseconds, cancellation);
        return (await bare.RunWindowAsync(WindowMilliseconds, cancellation), second);
    }
}
