using System.CommandLine;
using System.Diagnostics;
using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Client;
using Spectre.Console;

namespace KvCluster.Cli.Commands;

/// <summary>
/// `kv top`: shards by how much they change, again and again. On a terminal a table that stays in its place, elsewhere a table or a document each time.
/// </summary>
internal static class TopCommand
{
    private static readonly Option<double> Interval = Globals.SecondsOption("--interval", "Time between two looks.", seconds: 2);
    private static readonly Option<ulong> Count = new("--count") { Description = "End after so many looks; 0 means never.", HelpName = "N" };

    public static Command Create() => CliCommand.CreateReader(
        "top", "Show continuously which shards change most, their leaders, sizes, and how far replicas are behind.", [Interval, Count], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        var interval = Globals.SecondsOf(arguments, Interval);
        var count = arguments.GetValue(Count) is > 0 and var wanted ? wanted : ulong.MaxValue;
        await using var client = Globals.ClientOf(arguments);
        var looks = LookAsync(client, interval, count, stop);
        try
        {
            if (output.IsJson || Console.IsOutputRedirected)
                await PrintAsync(output, looks);
            else
                await ShowAsync(looks);
        }
        catch (OperationCanceledException) when (stop.IsCancellationRequested)
        {
            // The ordinary end.
        }
        return ExitCodes.Done;
    }

    private static async IAsyncEnumerable<Look> LookAsync(KvClient client, TimeSpan interval, ulong count, [EnumeratorCancellation] CancellationToken stop)
    {
        IReadOnlyList<ShardActivity> shards = [];
        var last = Stopwatch.GetTimestamp();
        for (var left = count; left > 0; left--)
        {
            var status = await client.Admin.GetStatusAsync(cancellationToken: stop);
            var passed = Stopwatch.GetElapsedTime(last);
            (shards, last) = (ShardActivity.Of(status, shards, passed), Stopwatch.GetTimestamp());
            yield return new Look(status, shards);
            if (left > 1)
                await Task.Delay(interval, stop);
        }
    }

    private static async Task PrintAsync(Output output, IAsyncEnumerable<Look> looks)
    {
        await foreach (var look in looks)
        {
            if (output.IsJson)
                output.Document(ToDocument(look));
            else
                output.Table(TableOf(look));
            // Somebody reads while the next look is waited for.
            output.Flush();
        }
    }

    private static async Task ShowAsync(IAsyncEnumerable<Look> looks)
    {
        var console = AnsiConsole.Create(new AnsiConsoleSettings { Out = new AnsiConsoleOutput(Console.Out) });
        try
        {
            await console.Live(new Markup("")).StartAsync(async context =>
            {
                await foreach (var look in looks)
                {
                    context.UpdateTarget(TableOf(look));
                    context.Refresh();
                }
            });
        }
        finally
        {
            ApplicationKeys.Leave();
        }
    }

    private static Table TableOf(Look look)
    {
        var table = new Table().Border(TableBorder.Ascii2).AddColumns("shard", "leader", "range");
        foreach (var number in (string[])["changes/s", "keys", "data MB", "lag", "replicas"])
            table.AddColumn(new TableColumn(number).RightAligned());
        foreach (var shard in look.Shards)
        {
            table.AddRow(
                Number(shard.Shard),
                shard.Leader is { } leader ? Number(leader) : "none",
                Safe($"[{Text.FromBytes(shard.Start.Span)}, {(shard.End.IsEmpty ? "end" : Text.FromBytes(shard.End.Span))})"),
                shard.ChangesPerSecond?.ToString("N0", CultureInfo.InvariantCulture) ?? "",
                shard.Keys.ToString("N0", CultureInfo.InvariantCulture),
                (shard.DataBytes / 1e6).ToString("N1", CultureInfo.InvariantCulture),
                Number(shard.Lag),
                string.Create(CultureInfo.InvariantCulture, $"{shard.Serving}/{shard.Replicas}"));
        }
        foreach (var node in look.Status.Nodes.Where(static node => node.Error.Length > 0))
            table.AddRow("", Number(node.Node), Safe(node.Error));
        return table;
    }

    // Text of nodes is shown and not obeyed, neither by the terminal nor by the library that makes tables.
    private static string Safe(string text) => Markup.Escape(OneLine.Of(text));

    private static string Number(ulong number) => number.ToString(CultureInfo.InvariantCulture);

    private static Fields ToDocument(Look look) => new Fields
    {
        { "cluster", look.Status.Cluster },
        { "shards", look.Shards.Select(static shard => new Fields
        {
            { "shard", shard.Shard },
            { "leader", shard.Leader },
            { "start", Text.FromBytes(shard.Start.Span) },
            { "end", Text.FromBytes(shard.End.Span) },
            { "changes", shard.Changes },
            { "changes_per_second", shard.ChangesPerSecond },
            { "keys", shard.Keys },
            { "data_bytes", shard.DataBytes },
            { "lag", shard.Lag },
            { "replicas", shard.Replicas },
            { "serving", shard.Serving },
        }) },
        { "silent", look.Status.Nodes.Where(static node => node.Error.Length > 0)
            .Select(static node => new Fields { { "node", node.Node }, { "error", node.Error } }) },
    };

    /// <summary>What was seen at one moment.</summary>
    private sealed record Look(ClusterStatus Status, IReadOnlyList<ShardActivity> Shards);
}
