using System.Globalization;
using Spectre.Console;

namespace KvCluster.Cli.Files;

/// <summary>
/// The progress bar of a load, with rate and remaining time, on standard error if that is a terminal; otherwise nothing. Runs beside the load from construction
/// to disposal and only reads its state.
/// </summary>
internal sealed class LoadProgress : IDisposable
{
    private static readonly TimeSpan Interval = TimeSpan.FromMilliseconds(200);

    private readonly CancellationTokenSource _end = new();
    private readonly Task _shown;

    public LoadProgress(RecordReader file, FileLoad load)
    {
        var console = AnsiConsole.Create(new AnsiConsoleSettings { Out = new AnsiConsoleOutput(Console.Error) });
        _shown = Console.IsErrorRedirected ? Task.CompletedTask : ShowAsync(console, file, load);
    }

    public void Dispose()
    {
        _end.Cancel();
        _shown.Wait();
        ApplicationKeys.Leave();
        _end.Dispose();
    }

    private Task ShowAsync(IAnsiConsole console, RecordReader file, FileLoad load) => console.Progress()
        .AutoClear(true)
        .Columns(new TaskDescriptionColumn(), new ProgressBarColumn(), new PercentageColumn(), new RemainingTimeColumn())
        .StartAsync(async progress =>
        {
            var task = progress.AddTask("loading", maxValue: 1);
            task.IsIndeterminate = file.Fraction is null;
            var started = TimeProvider.System.GetTimestamp();
            while (!_end.IsCancellationRequested)
            {
                var seconds = Math.Max(0.001, TimeProvider.System.GetElapsedTime(started).TotalSeconds);
                task.Value = file.Fraction ?? 0;
                task.Description = string.Create(CultureInfo.InvariantCulture, $"{load.Acknowledged:N0} records, {load.Acknowledged / seconds:N0}/s");
                await Task.Delay(Interval, _end.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            }
        });
}
