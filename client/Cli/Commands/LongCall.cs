using System.Diagnostics;

namespace KvCluster.Cli.Commands;

/// <summary>Tells a person that a call which may take long goes on. A node that stands still is noticed by the call itself, which then fails.</summary>
internal static class LongCall
{
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(4);

    /// <summary>Waits for a call.</summary>
    /// <param name="call">The call, which ends when the command is interrupted.</param>
    /// <param name="output">In JSON nothing is told.</param>
    /// <param name="what">What goes on, as a sentence without its point.</param>
    public static async Task<T> EndAsync<T>(Task<T> call, Output output, string what)
    {
        var begun = Stopwatch.StartNew();
        while (!output.IsJson && await Task.WhenAny(call, Task.Delay(SilenceMax)) != call)
            StandardError.Tell($"{what}, for {Text.Number((long)begun.Elapsed.TotalSeconds)} s so far");
        return await call;
    }
}
