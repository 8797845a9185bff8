using System.CommandLine;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv bench`: a number of callers, each with one call in progress, for some time. Keys written under `bench/` are not removed.</summary>
internal static class BenchCommand
{
    private static readonly Argument<string> Workload = WorkloadArgument();
    private static readonly Option<int> Callers =
        new("--callers") { Description = "Number of callers, each with one call in progress.", HelpName = "N", DefaultValueFactory = _ => 64 };
    private static readonly Option<double> Seconds = Globals.SecondsOption("--seconds", "Duration of the run.", seconds: 10, "S");
    private static readonly Option<int> Keys =
        new("--keys") { Description = "Number of different keys, chosen at random.", HelpName = "N", DefaultValueFactory = _ => 100_000 };
    private static readonly Option<int> ValueBytes =
        new("--value-bytes") { Description = "Size of a value in bytes.", HelpName = "N", DefaultValueFactory = _ => 100 };

    public static Command Create() => CliCommand.Create(
        "bench",
        "Measure throughput and latency. Puts write keys under bench/ and leave them there.", [Workload, Callers, Seconds, Keys, ValueBytes], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        var workload = arguments.GetRequiredValue(Workload);
        var callers = InRange(arguments, Callers, 10_000);
        var keys = InRange(arguments, Keys, 100_000_000);
        var value = new byte[InRange(arguments, ValueBytes, KvLimits.ValueBytesMax)];
        Random.Shared.NextBytes(value);
        var limit = Globals.SecondsOf(arguments, Seconds);
        await using var client = Globals.ClientOf(arguments);
        var started = Stopwatch.GetTimestamp();
        var latencies = await Task.WhenAll(
            Enumerable.Range(0, callers).Select(_ => Task.Run(() => CallAsync(client, workload, keys, value, started, limit, stop), stop)));
        Print(output, workload, callers, [.. latencies.SelectMany(one => one).Order()], Stopwatch.GetElapsedTime(started).TotalSeconds);
        return ExitCodes.Done;
    }

    private static async Task<List<TimeSpan>> CallAsync(
        KvClient client, string workload, int keys, byte[] value, long started, TimeSpan limit, CancellationToken stop)
    {
        var latencies = new List<TimeSpan>(1 << 14);
        // At least one call, so that a caller that starts late has a latency too.
        do
        {
            var key = Text.ToBytes(string.Create(CultureInfo.InvariantCulture, $"bench/{Random.Shared.Next(keys):D10}"));
            var begun = Stopwatch.GetTimestamp();
            if (workload == "put" || (workload == "mixed" && Random.Shared.Next(2) == 0))
                await client.PutAsync(key, value, cancellationToken: stop);
            else
                await client.GetAsync(key, cancellationToken: stop);
            latencies.Add(Stopwatch.GetElapsedTime(begun));
        }
        while (Stopwatch.GetElapsedTime(started) < limit);

        return latencies;
    }

    private static void Print(Output output, string workload, int callers, TimeSpan[] latencies, double seconds)
    {
        var rate = latencies.Length / seconds;
        var (p50, p99, max) =
            (latencies[latencies.Length / 2].TotalMilliseconds, latencies[(int)(latencies.Length * 0.99)].TotalMilliseconds, latencies[^1].TotalMilliseconds);
        if (output.IsJson)
            output.Document(new
            {
                Workload = workload, Callers = callers, Operations = latencies.Length, Seconds = seconds, OperationsPerSecond = rate,
                P50Ms = p50, P99Ms = p99, MaxMs = max
            });
        else
            output.Line(string.Create(CultureInfo.InvariantCulture, $"{workload}, {callers} callers: {rate:N0}/s, p50 {p50:F2} ms, p99 {p99:F2} ms, max "
                + $"{max:F1} ms ({latencies.Length:N0} in {seconds:F1} s)"));
    }

    private static int InRange(ParseResult arguments, Option<int> option, int most) => arguments.GetValue(option) is var value && value >= 1 && value <= most
        ? value
        : throw new CliException(ExitCodes.Usage, $"{option.Name} must be from 1 to {most}.");

    private static Argument<string> WorkloadArgument()
    {
        var argument = new Argument<string>("WORKLOAD") { Description = "put, get, or mixed: half of each." };
        argument.AcceptOnlyFromAmong("put", "get", "mixed");
        return argument;
    }
}
