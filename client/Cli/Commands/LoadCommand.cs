using System.CommandLine;
using System.Globalization;
using KvCluster.Cli.Files;

namespace KvCluster.Cli.Commands;

/// <summary>
/// `kv load`: a TSV file into the cluster, in batches that are each durable on a majority when they count. Goes on through the death of
/// leaders. However it ends, it says up to which line everything is acknowledged, and `--from-line` goes on behind it.
/// </summary>
internal static class LoadCommand
{
    private static readonly Argument<string> File = new("FILE") { Description = "key TAB value, one record a line; gzip is unpacked; - is standard input." };
    private static readonly Option<long> FromLine = new("--from-line") { Description = "Begin at this line.", HelpName = "N", DefaultValueFactory = _ => 1 };
    private static readonly Option<double> GiveUpAfter = new("--give-up-after") { Description = "End when nothing was acknowledged for so many seconds.", HelpName = "SECONDS", DefaultValueFactory = _ => 30 };

    // Program ends two seconds after an interruption at the latest.
    private static readonly TimeSpan InterruptedSettleLimit = TimeSpan.FromSeconds(1);

    public static Command Create() => CliCommand.Create("load", "Load a TSV file.", [File, FromLine, GiveUpAfter], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        var fromLine = arguments.GetValue(FromLine);
        if (fromLine < 1)
            throw new CliException(ExitCodes.Usage, "--from-line takes 1 or more.");
        var giveUpAfter = Globals.SecondsOf(arguments, GiveUpAfter);
        using var file = TsvReader.Open(arguments.GetRequiredValue(File));
        await using var client = Globals.ClientOf(arguments, giveUpAfter < Globals.CallLimitDefault ? giveUpAfter : null);
        using var loader = new BatchLoader(client, fromLine, giveUpAfter);
        Exception? failure = null;
        using (var progress = new LoadProgress(file, loader))
        {
            try
            {
                await file.SkipAsync(fromLine - 1, stop);
                await LoadAsync(file, loader, stop);
            }
            catch (Exception e)
            {
                failure = e;
                await SettleAsync(loader, stop);
            }
        }

        Tell(output, loader.Report(failure is null ? null : Failures.Describe(failure).Line));
        return failure is null ? ExitCodes.Done : throw failure;
    }

    // What is under way is settled before the end is told. Each batch gives up by itself, but whoever pressed Ctrl-C does not wait for that.
    private static async Task SettleAsync(BatchLoader loader, CancellationToken stop)
    {
        using var limit = new CancellationTokenSource();
        await using var interrupted = stop.Register(() => limit.CancelAfter(InterruptedSettleLimit));
        try
        {
            await loader.SettleAsync(limit.Token);
        }
        catch (OperationCanceledException)
        {
            loader.Abandon();
            await loader.SettleAsync(CancellationToken.None);
        }
    }

    private static async Task LoadAsync(TsvReader file, BatchLoader loader, CancellationToken stop)
    {
        try
        {
            while (await file.ReadAsync(stop) is { } record)
                await loader.AddAsync(record, stop);
        }
        catch (CliException)
        {
            // A line that is no record: nothing that stands before it is lost.
            await loader.DrainAsync(stop);
            throw;
        }

        await loader.DrainAsync(stop);
    }

    private static void Tell(Output output, LoadReport report)
    {
        if (output.IsJson)
            output.Document(report);
        else
            output.Line(string.Create(CultureInfo.InvariantCulture,
                $"{report.Records:N0} records in {report.Seconds:F1} s, {report.RecordsPerSecond:N0} records/s; acknowledged up to line {report.AcknowledgedLine}; longest pause {report.LongestPauseSeconds:F2} s"));
    }
}
