// Benchmarks: dotnet run -c Release --project tests/KvCluster.Benchmarks -- SUITE [--quick] [--json FILE]
// Prints a table and, if asked, writes the rows as a JSON array. Exit codes: 0 measured, 1 failed, 2 usage.
using System.CommandLine;
using KvCluster.Benchmarks;
using KvCluster.Benchmarks.Api;
using KvCluster.Benchmarks.Clients;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Benchmarks.Engine;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Benchmarks.Grpc;
using KvCluster.Benchmarks.Primitives;
using KvCluster.Benchmarks.Routing;
using KvCluster.Benchmarks.Shards;
using KvCluster.ServiceDefaults.Programs;
using Spectre.Console;

SharedArrays.KeepMany();

// The program runs as one side of a measurement of itself.
if (args is [GrpcPeer.Command, ..])
    return await GrpcPeer.RunAsync(args);
if (args is [LimitedProcess.Command, ..])
    return await LimitedProcess.RunAsync(args);
if (args is [FirstCallCommand.Name, ..])
    return await FirstCallCommand.RunAsync(args);
// Or as what scripts judge pauses by.
if (args is [BareLoopCommand.Name, ..])
    return BareLoopCommand.Run(args);

var only = new Option<string[]>("--only") { Description = "Suite engine: only these groups of rows, of "
    + $"{string.Join(", ", EngineSuite.Groups.Keys)}.", AllowMultipleArgumentsPerToken = true };
only.AcceptOnlyFromAmong([.. EngineSuite.Groups.Keys]);
var systems = new Option<string[]>("--systems") { Description = "Suites engine and beyond-memory: only these engines.", AllowMultipleArgumentsPerToken = true };
systems.AcceptOnlyFromAmong(EngineSystem.KvCluster, EngineSystem.Lmdb, EngineSystem.RocksDb);
var keys = new Option<long?>("--keys")
{
    Description = "Suites engine and beyond-memory: keys of a large store, 10 million and 80 million unless --quick.",
};
var rounds = new Option<int?>("--rounds")
{
    Description = "Suites engine and beyond-memory: times that each row is measured, 3 and 1. Suite shards: the same, 3 unless --quick.",
};
var seconds = new Option<double?>("--seconds")
{
    Description = "Suite engine: length of one measurement, and by that the number of puts, 5 unless --quick. Suite beyond-memory: length of a row, 120 unless "
        + "--quick. Suites clients and ycsb: length of a workload of YCSB, 20 unless --quick. Suite shards: length of one measurement under load, 10 unless "
        + "--quick.",
};
var records = new Option<int?>("--records") { Description = "Suites clients and ycsb: records of YCSB, 10 million unless --quick." };
ParseResult? chosen = null;

// One line per suite. The last four are long parts of the suites cluster, faults and clients, which can be run alone; beyond-memory and shards are run alone
// only.
var suites = new Dictionary<string, BenchmarkSuite>
{
    ["api"] = ApiSuite.RunAsync,
    ["clients"] = (quick, progress, cancellation) => ClientsSuite.RunAsync(ClientsPlanOf(quick), progress, cancellation),
    ["beyond-memory"] = (quick, progress, cancellation) => EngineSuite.RunBeyondMemoryAsync(
        BeyondMemoryRows.Plan(quick, chosen!.GetValue(systems) ?? [], chosen.GetValue(keys), chosen.GetValue(rounds), chosen.GetValue(seconds)),
        quick, progress, cancellation),
    ["cluster"] = ClusterSuite.Run,
    ["engine"] = (quick, progress, cancellation) => EngineSuite.RunAsync(
        EnginePlan.Of(
            quick, chosen!.GetValue(only) ?? [], chosen.GetValue(systems) ?? [], chosen.GetValue(keys), chosen.GetValue(rounds),
            chosen.GetValue(seconds)),
        progress, cancellation),
    ["etag"] = EtagSuite.Run,
    ["faults"] = FaultSuite.RunAsync,
    ["grpc"] = GrpcSuite.RunAsync,
    ["routing"] = RoutingSuite.RunAsync,
    ["shards"] = (quick, progress, cancellation) => ShardsSuite.RunAsync(
        ShardsPlan.Of(quick, chosen!.GetValue(rounds), chosen.GetValue(seconds)), progress, cancellation),
    ["telemetry"] = TelemetrySuite.RunAsync,
    ["mixed-load"] = ClusterSuite.RunMixedLoadAsync,
    ["many-keys"] = ClusterSuite.RunManyKeysAsync,
    ["slow-disk"] = FaultSuite.RunSlowDiskAsync,
    ["ycsb"] = (quick, progress, cancellation) => YcsbMeasure.RunAsync(ClientsPlanOf(quick), progress, cancellation),
};

var suite = new Argument<string>("suite") { Description = $"What to measure: {string.Join(", ", suites.Keys)}." };
suite.AcceptOnlyFromAmong([.. suites.Keys]);
var quick = new Option<bool>("--quick") { Description = "Fewer and shorter runs." };
var json = new Option<string>("--json") { Description = "Also write the rows to this file as a JSON array." };
var root = new RootCommand("Measures KvCluster beside its peers.") { suite, quick, json, only, systems, keys, rounds, seconds, records };
root.SetAction(async (arguments, cancellation) =>
{
    try
    {
        chosen = arguments;
        var rows = await suites[arguments.GetRequiredValue(suite)](arguments.GetValue(quick), Console.Error.WriteLine, cancellation);
        BenchmarkReport.Print(AnsiConsole.Console, rows);
        if (arguments.GetRequiredValue(suite) == EngineRun.Suite)
        {
            var isWhole = arguments.GetValue(only) is not { Length: > 0 } && arguments.GetValue(systems) is not { Length: > 0 };
            foreach (var verdict in EngineTargets.Verdicts(rows, arguments.GetValue(quick), isWhole))
                Console.WriteLine(verdict);
        }
        foreach (var verdict in RoutingTargets.Verdicts(rows).Concat(ClientsTargets.Verdicts(rows)))
            Console.WriteLine(verdict);
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

ClientsPlan ClientsPlanOf(bool isQuick) => ClientsPlan.Of(isQuick, chosen!.GetValue(records), chosen.GetValue(seconds));

static async Task<int> Usage(ParseResult parsed)
{
    await parsed.InvokeAsync();
    return 2;
}
