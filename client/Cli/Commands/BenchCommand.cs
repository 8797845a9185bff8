using System.CommandLine;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Cli.Bench;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv bench`: a number of callers for some time, with one call each in progress. Keys written under `bench/` are not removed.</summary>
internal static class BenchCommand
{
    private const int RateMax = 10_000_000;

    private static readonly Argument<string> WorkloadName = WorkloadArgument();
    private static readonly Option<int> Callers =
        new("--callers") { Description = "Number of callers, each with one call in progress.", HelpName = "N", DefaultValueFactory = _ => 64 };
    private static readonly Option<double> Seconds = Globals.SecondsOption("--seconds", "Duration of the run.", seconds: 10, "S");
    private static readonly Option<int> Keys =
        new("--keys") { Description = "Number of different keys, chosen at random.", HelpName = "N", DefaultValueFactory = _ => 100_000 };
    private static readonly Option<int> ValueBytes =
        new("--value-bytes") { Description = "Size of a value in bytes.", HelpName = "N", DefaultValueFactory = _ => 100 };
    private static readonly Option<int?> Rate = new("--rate")
    {
        Description = "Begin so many operations a second, whether others were answered or not. The time of one counts from when it was due. "
            + "Two seconds after the end the rest is given up and counted. Without it each caller waits for the answer to one before the next.",
        HelpName = "N",
    };

    private static readonly Option<bool> Load = new("--load") { Description = "First write all the keys, which YCSB's workloads expect to be there." };

    public static Command Create() => CliCommand.Create(
        "bench",
        "Measure throughput and latency. Puts write keys under bench/ and leave them there.",
        [WorkloadName, Callers, Seconds, Keys, ValueBytes, Rate, Load], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        var workload = Workload.All.First(one => one.Name == arguments.GetRequiredValue(WorkloadName));
        var callers = InRange(arguments, Callers, 10_000);
        var keys = InRange(arguments, Keys, 100_000_000);
        var value = new byte[InRange(arguments, ValueBytes, KvLimits.ValueBytesMax)];
        Random.Shared.NextBytes(value);
        var duration = Globals.SecondsOf(arguments, Seconds);
        var rate = RateOf(arguments);
        await using var client = Globals.ClientOf(arguments);
        if (arguments.GetValue(Load))
            await LoadAsync(client, keys, value, stop);
        var latencies = new Latencies();
        var run = new BenchRun(client, workload, new BenchKeys(workload.Keys, keys), value, latencies);
        var started = Stopwatch.GetTimestamp();
        LeftUndone? left = null;
        if (rate is { } each)
            left = await run.OpenLoopAsync(callers, each, duration, stop);
        else
            await run.CloseLoopAsync(callers, duration, stop);
        Print(output, workload, callers, rate, left, latencies, Stopwatch.GetElapsedTime(started).TotalSeconds);
        return ExitCodes.Done;
    }

    private static async Task LoadAsync(KvClient client, int keys, byte[] value, CancellationToken stop)
    {
        var started = Stopwatch.GetTimestamp();
        await using var load = client.BulkLoad();
        for (var number = 0; number < keys; number++)
            await load.AddAsync(BenchKeys.At(number), value, stop);
        await load.FlushAsync(stop);
        // On standard error, because the result is that of the run.
        StandardError.Tell(string.Create(CultureInfo.InvariantCulture, $"{keys:N0} keys written in {Stopwatch.GetElapsedTime(started).TotalSeconds:F1} s"));
    }

    private static void Print(Output output, Workload workload, int callers, int? rate, LeftUndone? left, Latencies latencies, double seconds)
    {
        var all = latencies.OfAll();
        var byOperation = latencies.ByOperation();
        if (output.IsJson)
        {
            output.Document(new Fields
            {
                { "workload", workload.Name },
                { "callers", callers },
                { "operations", all.Count },
                { "seconds", seconds },
                { "operations_per_second", all.Count / seconds },
                { "p50_ms", all.P50.TotalMilliseconds },
                { "p99_ms", all.P99.TotalMilliseconds },
                { "max_ms", all.Max.TotalMilliseconds },
                { "p90_ms", all.P90.TotalMilliseconds },
                { "p999_ms", all.P999.TotalMilliseconds },
                { "p9999_ms", all.P9999.TotalMilliseconds },
                { "rate", rate },
                { "not_sent", left?.NotSent },
                { "not_answered", left?.NotAnswered },
                { "kinds", byOperation.Select(static one => new Fields
                {
                    { "kind", NameOf(one.Operation) },
                    { "operations", one.Summary.Count },
                    { "p50_ms", one.Summary.P50.TotalMilliseconds },
                    { "p90_ms", one.Summary.P90.TotalMilliseconds },
                    { "p99_ms", one.Summary.P99.TotalMilliseconds },
                    { "p999_ms", one.Summary.P999.TotalMilliseconds },
                    { "p9999_ms", one.Summary.P9999.TotalMilliseconds },
                    { "max_ms", one.Summary.Max.TotalMilliseconds },
                }) },
            });
            return;
        }
        var due = rate is { } each ? string.Create(CultureInfo.InvariantCulture, $", {each:N0}/s were due") : "";
        output.Line(string.Create(CultureInfo.InvariantCulture, $"{workload.Name}, {callers} callers: {all.Count / seconds:N0}/s, {Describe(all)} ("
            + $"{all.Count:N0} in {seconds:F1} s{due})"));
        if (left is { NotSent: > 0 } or { NotAnswered: > 0 })
            output.Line(string.Create(CultureInfo.InvariantCulture, $"  {left?.NotSent:N0} that were due were not sent, and {left?.NotAnswered:N0} were not "
                + $"answered, when the run ended. So the times are less than at this rate: choose a lower one, or more callers."));
        if (byOperation.Count > 1)
        {
            foreach (var (operation, summary) in byOperation)
                output.Line(string.Create(CultureInfo.InvariantCulture, $"  {NameOf(operation)}: {Describe(summary)} ({summary.Count:N0})"));
        }
    }

    private static string Describe(LatencySummary summary) => string.Create(CultureInfo.InvariantCulture, $"p50 {summary.P50.TotalMilliseconds:F2} ms, "
        + $"p99 {summary.P99.TotalMilliseconds:F2} ms, p99.9 {summary.P999.TotalMilliseconds:F2} ms, max {summary.Max.TotalMilliseconds:F1} ms");

    private static string NameOf(BenchOperation operation) => operation.ToString().ToLowerInvariant();

    private static int? RateOf(ParseResult arguments) => arguments.GetValue(Rate) is null or (>= 1 and <= RateMax)
        ? arguments.GetValue(Rate)
        : throw new CliException(ExitCodes.Usage, $"{Rate.Name} must be from 1 to {RateMax}.");

    private static int InRange(ParseResult arguments, Option<int> option, int most) => arguments.GetValue(option) is var value && value >= 1 && value <= most
        ? value
        : throw new CliException(ExitCodes.Usage, $"{option.Name} must be from 1 to {most}.");

    private static Argument<string> WorkloadArgument()
    {
        var argument = new Argument<string>("WORKLOAD") { Description = "put, get, mixed: half of each; a to f: the core workloads of YCSB." };
        argument.AcceptOnlyFromAmong([.. Workload.All.Select(static one => one.Name)]);
        return argument;
    }
}
