// Suite "grpc": what a call costs our stack, beside a client and a server that do no more than the frame. Ours and the bare one take
// turns, so that what else the machine does hits both; a ratio compares runs that follow each other.
using System.Diagnostics;
using System.Globalization;
using System.Text.Json;

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
        var bare = new List<EchoResult>();
        var ourServer = new List<EchoResult>();
        var ourClient = new List<EchoResult>();
        var ours = new List<EchoResult>();
        for (var run = 1; run <= (quick ? 1 : 5); run++)
        {
            progress($"{workload}: run {run}");
            bare.Add(await RunOnceAsync(Bare, Bare));
            ourServer.Add(await RunOnceAsync(Bare, Ours));
            ourClient.Add(await RunOnceAsync(Ours, Bare));
            ours.Add(await RunOnceAsync(Ours, Ours));
        }
        return
        [
            Row(Bare, "op/s", bare.Select(result => result.PerSecond)),
            Row(Ours, "op/s", ours.Select(result => result.PerSecond)),
            Row(Bare, "server us/op", bare.Select(result => result.ServerCpuMicroseconds)),
            Row(Ours, "server us/op", ourServer.Select(result => result.ServerCpuMicroseconds)),
            Row(Ours, "server ratio", ourServer.Zip(bare, (mine, its) => mine.ServerCpuMicroseconds / its.ServerCpuMicroseconds)),
            Row(Bare, "client us/op", bare.Select(result => result.ClientCpuMicroseconds)),
            Row(Ours, "client us/op", ourClient.Select(result => result.ClientCpuMicroseconds)),
            Row(Ours, "client ratio", ourClient.Zip(bare, (mine, its) => mine.ClientCpuMicroseconds / its.ClientCpuMicroseconds)),
            Row(Bare, "client bytes/op", bare.Select(result => result.ClientBytes)),
            Row(Ours, "client bytes/op", ourClient.Select(result => result.ClientBytes)),
        ];

        BenchmarkRow Row(string system, string unit, IEnumerable<double> values) => BenchmarkRow.Of(Suite, workload, system, unit, [.. values]);

        async Task<EchoResult> RunOnceAsync(string client, string server)
        {
            using var serving = Start("server", server);
            try
            {
                var port = int.Parse(await serving.StandardOutput.ReadLineAsync(cancellation) ?? throw Died("server"), CultureInfo.InvariantCulture);
                var plan = new EchoPlan(client, isDuplex, callers, port, serving.Id, quick ? 1 : 2, quick ? 1 : 2);
                using var calling = Start("client", JsonSerializer.Serialize(plan));
                try
                {
                    return JsonSerializer.Deserialize<EchoResult>(await calling.StandardOutput.ReadLineAsync(cancellation) ?? throw Died("client"))!;
                }
                finally
                {
                    calling.Kill();
                }
            }
            finally
            {
                serving.Kill();
            }
        }
    }

    private static Process Start(string side, string argument)
    {
        var program = Environment.ProcessPath!;
        string[] self = Path.GetFileNameWithoutExtension(program) == "dotnet" ? [typeof(GrpcSuite).Assembly.Location] : [];
        return Process.Start(new ProcessStartInfo(program, [.. self, GrpcPeer.Command, side, argument])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            // Threads that spin while they have nothing to do would be counted as the cost of calls.
            Environment = { ["DOTNET_ThreadPool_UnfairSemaphoreSpinLimit"] = "0" },
        })!;
    }

    private static InvalidOperationException Died(string side) => new($"The {side} process ended without a result; what it wrote to its error output says why.");
}
