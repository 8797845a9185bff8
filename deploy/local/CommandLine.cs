using System.CommandLine;
using System.Text;

namespace KvCluster.Local;

/// <summary>The launcher's options and their checks, with one line for each mistake.</summary>
internal static class CommandLine
{
    private static readonly Option<string> Data =
        new("--data") { Description = "Directory that keeps the cluster's data between runs.", DefaultValueFactory = _ => ".kvcluster", HelpName = "DIR" };
    private static readonly Option<int?> Nodes = new(
        "--nodes") { Description = $"New cluster only: number of nodes, 1 to {LocalOptions.NodesMax} (default {LocalOptions.NodesDefault}).", HelpName = "N" };
    private static readonly Option<int?> Shards = new("--shards") { Description = $"New cluster only: number of shards, 1 to {LocalOptions.ShardsMax}, split "
        + "evenly by the keys of the sample (default 1).", HelpName = "N" };
    private static readonly Option<string?> SplitAt =
        new("--split-at") { Description = "New cluster only: keys at which shards begin, separated by commas: files/,packages/", HelpName = "KEYS" };
    private static readonly Option<int> Port = new("--port")
    {
        Description = "Port of the router. Node N listens N ports above it, and for other nodes 10 + N ports above it.",
        DefaultValueFactory = _ => LocalOptions.PortDefault,
        HelpName = "PORT"
    };
    private static readonly Option<int?> ConsolePort = new("--console-port") { Description = "Port of the console (default: "
        + $"{LocalOptions.ConsolePortOffset} above --port). With --processes it is the router's, and node N has one N ports above it.", HelpName = "PORT" };
    private static readonly Option<bool> Processes =
        new("--processes") { Description = "Run each node and the router as a process of its own, which is restarted when it dies." };
    private static readonly Option<bool> Tls =
        new("--tls") { Description = "Use TLS between clients, router and nodes, with certificates that are kept in the data directory." };
    private static readonly Option<bool> Sample = new("--sample") { Description = "Load the sample data: about 2,000 package records under packages/." };

    // The cluster may take 5 s to stop. After that the process ends in any case.
    private static readonly TimeSpan StopLimit = TimeSpan.FromSeconds(5);

    /// <summary>Runs the command. <paramref name="run"/> gets valid options, and a token that Ctrl-C or SIGTERM cancels.</summary>
    /// <returns>The exit code.</returns>
    public static async Task<int> InvokeAsync(string[] arguments, Func<LocalOptions, CancellationToken, Task<int>> run)
    {
        var parsed = Create(run).Parse(arguments);
        if (parsed.Errors.Count == 0)
            return await parsed.InvokeAsync(new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = StopLimit });
        return Refuse(KvCluster.Cli.ParseMistakes.Describe(parsed.Errors));
    }

    private static int Refuse(string wrong)
    {
        Console.Error.WriteLine($"kv-local: {wrong} See kv-local --help.");
        return ExitCodes.Usage;
    }

    private static RootCommand Create(Func<LocalOptions, CancellationToken, Task<int>> run)
    {
        var root = new RootCommand("Start a whole KvCluster on this machine: nodes, a router and a coordinator, on loopback addresses.")
        {
            Data, Nodes, Shards, SplitAt, Port, ConsolePort, Processes, Tls, Sample
        };
        root.SetAction((arguments, stop) => WrongIn(arguments) is { } wrong ? Task.FromResult(Refuse(wrong)) : run(OptionsOf(arguments), stop));
        return root;
    }

    private static LocalOptions OptionsOf(ParseResult arguments) => new(
        Path.GetFullPath(arguments.GetRequiredValue(Data)),
        arguments.GetValue(Nodes),
        arguments.GetValue(SplitAt) is { } keys ? SplitKeysIn(keys) : arguments.GetValue(Shards) is { } shards ? SampleData.SplitKeys(shards) : null,
        arguments.GetValue(Port),
        ConsolePortOf(arguments),
        arguments.GetValue(Processes),
        arguments.GetValue(Tls),
        arguments.GetValue(Sample));

    private static string? WrongIn(ParseResult arguments)
    {
        if (arguments.GetRequiredValue(Data).Length == 0)
            return "--data requires the name of a directory.";
        if (arguments.GetValue(Nodes) is < 1 or > LocalOptions.NodesMax)
            return $"--nodes must be from 1 to {LocalOptions.NodesMax}.";
        if (arguments.GetValue(Shards) is < 1 or > LocalOptions.ShardsMax)
            return $"--shards must be from 1 to {LocalOptions.ShardsMax}.";
        if (arguments.GetValue(Port) is < 1 or > 65535 - LocalOptions.PeerPortOffset - LocalOptions.NodesMax)
            return $"--port must be from 1 to {65535 - LocalOptions.PeerPortOffset - LocalOptions.NodesMax}.";
        if (ConsolePortOf(arguments) is < 1 or > 65535 - LocalOptions.NodesMax)
            return $"--console-port must be from 1 to {65535 - LocalOptions.NodesMax}. Its default is {LocalOptions.ConsolePortOffset} above --port.";
        if (arguments.GetValue(SplitAt) is not { } text)
            return null;
        var keys = SplitKeysIn(text);
        if (arguments.GetValue(Shards) is { } shards && shards != keys.Count + 1)
            return $"--split-at with {keys.Count} keys makes {keys.Count + 1} shards, but --shards is {shards}.";
        return WrongSplit(keys) is { } wrong ? $"--split-at: {wrong}." : null;
    }

    private static int ConsolePortOf(ParseResult arguments) => arguments.GetValue(ConsolePort) ?? arguments.GetValue(Port) + LocalOptions.ConsolePortOffset;

    private static List<string> SplitKeysIn(string text) => [.. text.Split(',')];

    private static string? WrongSplit(List<string> keys)
    {
        if (keys.Count >= LocalOptions.ShardsMax)
            return $"at most {LocalOptions.ShardsMax - 1} keys";
        if (keys.FirstOrDefault(key => key.Length == 0 || Encoding.UTF8.GetByteCount(key) > KvLimits.KeyBytesMax) is { } wrong)
            return wrong.Length == 0 ? "a key is empty" : $"a key is longer than {KvLimits.KeyBytesMax} bytes";
        // The runtime's replacement for bytes that are not valid UTF-8.
        if (keys.Any(key => key.Contains('\uFFFD', StringComparison.Ordinal)))
            return "a key is not UTF-8";
        var bytes = keys.ConvertAll(Encoding.UTF8.GetBytes);
        return Enumerable.Range(1, keys.Count - 1).Any(i => bytes[i - 1].AsSpan().SequenceCompareTo(bytes[i]) >= 0) ? "keys must be in ascending order" : null;
    }
}
