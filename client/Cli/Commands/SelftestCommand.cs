using System.CommandLine;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Cli.Selftest;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>
/// `kv selftest`: whether a cluster does what it promises, seen from outside. It puts keys below a prefix of its own, and beside borders of shards
/// (<see cref="ShardBorder"/>), and removes them at the end, also after a failure.
/// </summary>
internal static class SelftestCommand
{
    private static readonly Option<double> Seconds =
        Globals.SecondsOption("--seconds", "How long the checks with concurrent callers run together.", seconds: 10, "S");
    private static readonly Option<int?> Seed = new("--seed") { Description = "The seed that an earlier run printed, for the same choices.", HelpName = "N" };

    public static Command Create() => CliCommand.Create(
        "selftest", "Check what a cluster promises: reads, conditions, scans, watches, expiry, exactly-once, limits. It removes its keys at the end.",
        [Seconds, Seed], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        var seed = arguments.GetValue(Seed) ?? Random.Shared.Next();
        // Four checks have concurrent callers.
        var duration = Globals.SecondsOf(arguments, Seconds) / 4;
        await using var client = Globals.ClientOf(arguments);
        var run = new SelftestRun(client, seed, duration);
        using var removal = new Removal(stop);
        if (!output.IsJson)
            output.Line(string.Create(CultureInfo.InvariantCulture, $"seed {seed}, keys below {run.Prefix}"));
        var borders = await ShardBorder.FindAsync(run, stop);
        (string Name, Func<Task> Check)[] checks =
        [
            ("limits", () => CallChecks.LimitsAsync(run, stop)),
            ("conditions", () => CallChecks.ConditionsAsync(run, stop)),
            ("sets", () => CallChecks.SetsAsync(run, stop)),
            ("sequence keys", () => CallChecks.SequenceAsync(run, stop)),
            ("linearizable reads", () => ConcurrentChecks.ReadsAsync(run, stop)),
            ("exactly once", () => ConcurrentChecks.ExactlyOnceAsync(run, stop)),
            (string.Create(CultureInfo.InvariantCulture, $"scans, {borders.Count} borders of shards"), () => ScanChecks.ScansAsync(run, borders, stop)),
            ("watch", () => ConcurrentChecks.WatchAsync(run, stop)),
            ("expiry", () => ConcurrentChecks.ExpiryAsync(run, stop)),
        ];
        var results = new List<CheckResult>();
        try
        {
            foreach (var (name, check) in checks)
                results.Add(await CheckAsync(name, check, output));
        }
        finally
        {
            await removal.RemoveAsync(run);
        }
        var failed = results.Count(static result => result.Failure is not null);
        if (output.IsJson)
            output.Document(new Fields
            {
                { "seed", seed }, { "passed", results.Count - failed }, { "failed", failed }, { "checks", results.Select(static result => result.ToFields()) },
            });
        else
            output.Line(failed == 0 ? $"{results.Count} checks passed" : $"{failed} of {results.Count} checks failed");
        return failed == 0 ? ExitCodes.Done : ExitCodes.ProblemsFound;
    }

    private static async Task<CheckResult> CheckAsync(string name, Func<Task> check, Output output)
    {
        var began = Stopwatch.GetTimestamp();
        string? failure = null;
        try
        {
            await check();
        }
        catch (SelftestFailure found)
        {
            failure = found.Message;
        }
        catch (KvException unexpected)
        {
            failure = $"a call ended with {unexpected.Reason}: {unexpected.Message}";
        }
        var result = new CheckResult(name, Math.Round(Stopwatch.GetElapsedTime(began).TotalSeconds, 3), failure);
        if (!output.IsJson)
        {
            output.Line(string.Create(CultureInfo.InvariantCulture, $"{(failure is null ? "passed" : "FAILED")} {name} ({result.Seconds:F1} "
                + $"s){(failure is null ? "" : ": " + failure)}"));
            // A check may take long, so the results of the checks before it are shown at once.
            output.Flush();
        }
        return result;
    }

    /// <summary>The result of one check.</summary>
    /// <param name="Failure">What was expected and what was seen; null if it passed.</param>
    private sealed record CheckResult(string Check, double Seconds, string? Failure)
    {
        public Fields ToFields() => new() { { "check", Check }, { "seconds", Seconds }, { "failure", Failure } };
    }
}
