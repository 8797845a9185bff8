using System.CommandLine;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Cli.Files;

namespace KvCluster.Cli.Commands;

/// <summary>
/// `kv import`, or `kv load`: loads a file, mostly in batches (<see cref="FileLoad"/>). A batch counts when it is durable on a majority. The load continues
/// when leaders die. However it ends, it reports up to which line everything is acknowledged, so that `--from-line` can continue after it.
/// </summary>
internal static class ImportCommand
{
    private static readonly Argument<string> File =
        new("FILE") { Description = "The file: one record per line, key, tab, value, or what export prints, as text or JSON. It may be compressed with gzip. "
            + "- is standard input." };
    private static readonly Option<long> FromLine =
        new("--from-line") { Description = "Start at this line, to continue a load that was interrupted.", HelpName = "N", DefaultValueFactory = _ => 1 };
    private static readonly Option<double> GiveUpAfter =
        Globals.SecondsOption("--give-up-after", "Stop after this many seconds without an acknowledgement.", seconds: 30);

    private static readonly Option<bool> Owned = new("--owned")
    {
        Description = "Also import keys that sessions owned where they were printed. They get no owner, and so do not end by themselves.",
    };

    // The program ends within two seconds after an interruption.
    private static readonly TimeSpan InterruptedStopLimit = TimeSpan.FromSeconds(1);

    public static Command Create() => CliCommand.Create(
        "import",
        "Load the records of a file. If that fails, the report says where to continue.", [File, FromLine, GiveUpAfter, Owned, .. TsvOptions.All],
        RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        var fromLine = arguments.GetValue(FromLine);
        if (fromLine < 1)
            throw new CliException(ExitCodes.Usage, "--from-line must be 1 or greater.");
        var giveUpAfter = Globals.SecondsOf(arguments, GiveUpAfter);
        using var file = RecordReader.Open(arguments.GetRequiredValue(File), TsvOptions.Of(arguments));
        await using var client = Globals.ClientOf(arguments, giveUpAfter < Globals.CallLimitDefault ? giveUpAfter : null);
        await using var load = new FileLoad(client, fromLine, giveUpAfter);
        var started = Stopwatch.GetTimestamp();
        var withOwned = arguments.GetValue(Owned);
        Exception? failure = null;
        using (var progress = new LoadProgress(file, load))
        {
            try
            {
                await file.SkipAsync(fromLine - 1, stop);
                await LoadAsync(file, load, withOwned, stop);
            }
            catch (Exception e)
            {
                failure = e;
                await StopAsync(load, stop);
            }
        }

        var seconds = Stopwatch.GetElapsedTime(started).TotalSeconds;
        Print(output, new LoadReport(
            load.Acknowledged,
            Math.Round(seconds, 3),
            Math.Round(load.Acknowledged / seconds),
            load.AcknowledgedLine,
            Math.Round(load.LongestPause.TotalSeconds, 3),
            load.LeftOut,
            failure is null ? null : Failures.Describe(failure).Line));
        if (load.LeftOut > 0)
            StandardError.Tell($"keys left out because sessions owned them: {Text.Number(load.LeftOut)}. With --owned they are imported, too.");
        return failure is null ? ExitCodes.Done : throw failure;
    }

    // Batches under way have their outcome before the report. Each one has a time limit of its own, but after Ctrl-C nobody waits for that.
    private static async Task StopAsync(FileLoad load, CancellationToken stop)
    {
        using var limit = new CancellationTokenSource();
        await using var interrupted = stop.Register(() => limit.CancelAfter(InterruptedStopLimit));
        await load.StopAsync(limit.Token);
    }

    private static async Task LoadAsync(RecordReader file, FileLoad load, bool withOwned, CancellationToken stop)
    {
        try
        {
            while (await file.ReadAsync(stop) is { } record)
            {
                // Without its session nothing would end it.
                if (record.IsOwned && !withOwned)
                    load.LeaveOut(record);
                else
                    await load.AddAsync(record, file.MayHaveLives, stop);
            }
        }
        catch (CliException)
        {
            // The line is not a record. The records before it are still written.
            await load.FlushAsync(stop);
            throw;
        }

        await load.FlushAsync(stop);
    }

    private static void Print(Output output, LoadReport report)
    {
        if (output.IsJson)
            output.Document(report.ToFields());
        else
            output.Line(string.Create(CultureInfo.InvariantCulture,
                $"{report.Records:N0} records in {report.Seconds:F1} s, {report.RecordsPerSecond:N0} records/s; "
                + $"acknowledged up to line {report.AcknowledgedLine}"
                + $"{(report.Error is null ? "" : $" (continue with --from-line {report.AcknowledgedLine + 1})")}; "
                + $"longest pause {report.LongestPauseSeconds:F2} s"));
    }

    /// <summary>The result of a load, successful or not.</summary>
    /// <param name="Records">Acknowledged in this run.</param>
    /// <param name="AcknowledgedLine">All lines up to this one are acknowledged. To continue, start at the next.</param>
    /// <param name="LongestPauseSeconds">The longest time without an acknowledgement while records were waiting for one.</param>
    /// <param name="LeftOut">Keys that were not imported because sessions owned them.</param>
    /// <param name="Error">Why it ended early; null if it did not.</param>
    private sealed record LoadReport(
        long Records, double Seconds, double RecordsPerSecond, long AcknowledgedLine, double LongestPauseSeconds, long LeftOut, string? Error)
    {
        public Fields ToFields() => new()
        {
            { "records", Records },
            { "seconds", Seconds },
            { "records_per_second", RecordsPerSecond },
            { "acknowledged_line", AcknowledgedLine },
            { "longest_pause_seconds", LongestPauseSeconds },
            { "left_out", LeftOut },
            { "error", Error },
        };
    }
}
