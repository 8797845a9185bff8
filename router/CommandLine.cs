using System.CommandLine;
using Microsoft.Extensions.Logging;

namespace KvCluster.Router;

/// <summary>The commands of kv-router, their options, and the checks that give one clear line for each mistake.</summary>
internal static class CommandLine
{
    private static readonly Option<string> Listen = new("--listen") { Description = "Where to listen: http://127.0.0.1:7400.", Required = true, HelpName = "URL" };
    private static readonly Option<string> Nodes = new("--nodes") { Description = "Nodes to learn the shard map from, separated by commas.", Required = true, HelpName = "URLS" };
    private static readonly Option<bool> UntilStdinEnds = new("--until-stdin-ends") { Description = "Stop when standard input ends, as on SIGTERM." };
    private static readonly TimeSpan StopLimit = TimeSpan.FromSeconds(4.5);

    /// <summary>Runs a command.</summary>
    /// <returns>The exit code.</returns>
    public static async Task<int> InvokeAsync(string[] arguments)
    {
        var run = new Command("run", "Runs a router until SIGTERM or Ctrl-C.") { Listen, Nodes, UntilStdinEnds };
        run.SetAction(RunAsync);
        var parsed = new RootCommand("A router of a KvCluster.") { run }.Parse(arguments);
        if (parsed.Errors.Count > 0)
            return Tell(string.Join(" ", parsed.Errors.Select(error => error.Message)) + " (--help lists the options)", ExitCodes.Usage);
        try
        {
            return await parsed.InvokeAsync(new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = StopLimit }).ConfigureAwait(false);
        }
        catch (IOException failure)
        {
            return Tell(failure.Message, ExitCodes.Unavailable);
        }
        catch (Exception failure)
        {
            return Tell($"{failure.GetType().Name}: {failure.Message}", ExitCodes.Internal);
        }
    }

    private static async Task<int> RunAsync(ParseResult arguments, CancellationToken stop)
    {
        string[] nodes = [.. arguments.GetRequiredValue(Nodes).Split(',', StringSplitOptions.RemoveEmptyEntries | StringSplitOptions.TrimEntries)];
        var listen = arguments.GetRequiredValue(Listen);
        if (nodes.Append(listen).FirstOrDefault(address => !IsAddress(address)) is { } wrong)
            return Tell($"'{wrong}' is not an address like http://127.0.0.1:7400.", ExitCodes.Usage);
        if (nodes.Length == 0)
            return Tell("--nodes names no node.", ExitCodes.Usage);
        using var logs = LoggerFactory.Create(log => log.AddSimpleConsole(console => console.SingleLine = true));
        await using var router = await RouterHost.StartAsync(new RouterOptions { Listen = listen, Seeds = nodes }, logs, stop).ConfigureAwait(false);
        await WaitForStopAsync(arguments.GetValue(UntilStdinEnds), stop).ConfigureAwait(false);
        return ExitCodes.Done;
    }

    private static async Task WaitForStopAsync(bool untilStdinEnds, CancellationToken stop)
    {
        var stopped = new TaskCompletionSource();
        await using var registration = stop.Register(stopped.SetResult);
        if (untilStdinEnds)
            await Task.WhenAny(stopped.Task, Console.OpenStandardInput().CopyToAsync(Stream.Null, CancellationToken.None)).ConfigureAwait(false);
        else
            await stopped.Task.ConfigureAwait(false);
    }

    private static bool IsAddress(string text) => Uri.TryCreate(text, UriKind.Absolute, out var address) && address.Scheme is ("http" or "https");

    private static int Tell(string line, int exitCode)
    {
        Console.Error.WriteLine($"kv-router: {line}");
        return exitCode;
    }
}
