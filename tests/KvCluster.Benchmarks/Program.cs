// Benchmarks: dotnet run -c Release --project tests/KvCluster.Benchmarks -- SUITE [--quick] [--json FILE]
// Prints a table and, if asked, writes the rows as a JSON array. Exit codes: 0 measured, 1 failed, 2 usage.
using System.CommandLine;
using KvCluster.Benchmarks;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Benchmarks.Engine;
using KvCluster.Benchmarks.Grpc;
using KvCluster.Benchmarks.Routing;
using KvCluster.ServiceDefaults;
using Spectre.Console;

SharedArrays.KeepMany();

// The program runs as one side of a measurement of itself.
if (args is [GrpcPeer.Command, ..])
    return await GrpcPeer.RunAsync(args);

// One line per suite. The last two are long parts of the suites cluster and faults, which can be run alone.
var suites = new Dictionary<string, BenchmarkSuite>
{
    ["cluster"] = ClusterSuite.Run,
    ["engine"] = EngineSuite.RunAsync,
    ["faults"] = FaultSuite.RunAsync,
    ["grpc"] = GrpcSuite.RunAsync,
    ["routing"] = RoutingSuite.Run,
    ["telemetry"] = TelemetrySuite.RunAsync,
    ["many-keys"] = ClusterSuite.RunManyKeysAsync,
    ["slow-disk"] = FaultSuite.RunSlowDiskAsync,
};

var suite = new Argument<string>("suite") { Description = $"What to measure: {string.Join(", ", suites.Keys)}." };
suite.AcceptOnlyFromAmong([.. suites.Keys]);
var quick = new Option<bool>("--quick") { Description = "Fewer and shorter runs." };
var json = new Option<string>("--json") { Description = "Also write the rows to this file as a JSON array." };
var root = new RootCommand("Measures KvCluster beside its peers.") { suite, quick, json };
root.SetAction(async (arguments, cancellation) =>
{
    try
    {
        var rows = await suites[arguments.GetRequiredValue(suite)](arguments.GetValue(quick), Console.Error.WriteLine, cancellation);
        BenchmarkReport.Print(AnsiConsole.Console, rows);
        if (arguments.GetValue(json) is { } path)
            await BenchmarkReport.WriteJsonAsync(path, rows);
        return 0;
    }
    catch (OperationCanceledException) when (cancellation.IsCancellationRequested)
    {
        Console.Error.WriteLine("stopped");
        return 1;
    }
});
var parsed = root.Parse(args);
return parsed.Errors.Count > 0 ? await Usage(parsed) : await parsed.InvokeAsync();

static async Task<int> Usage(ParseResult parsed)
{
    await parsed.InvokeAsync();
    return 2;
}
