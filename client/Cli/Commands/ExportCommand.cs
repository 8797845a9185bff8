using System.CommandLine;
using KvCluster.Cli.Files;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv export`: prints keys so that `kv import` can write them again as they are.</summary>
internal static class ExportCommand
{
    private static readonly Argument<string> Prefix =
        new("PREFIX") { Description = "Only keys with this prefix; without it, all keys.", DefaultValueFactory = _ => "" };
    private static readonly Option<string?> Start = new("--start") { Description = "Start of the range, inclusive.", HelpName = "KEY" };
    private static readonly Option<string?> End = new("--end") { Description = "End of the range, exclusive.", HelpName = "KEY" };
    private static readonly Option<bool> Owned =
        new("--owned") { Description = "Also export keys that sessions own. Where they are imported they have no owner, and so do not end by themselves." };

    public static Command Create() => CliCommand.CreateReader(
        "export",
        "Print keys with their values and the time that they still live, in lines that import reads: text, or JSON with --output json. Sets are left out.",
        [Prefix, Start, End, Owned, ReadOption.Mode, .. KeyForm.All], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        if (output.IsValueOnly)
            throw new CliException(ExitCodes.Usage, "export prints keys with their values, so it cannot be used with --output value.");
        var scan = new KvScan
        {
            Prefix = KeyForm.Of(arguments, arguments.GetRequiredValue(Prefix)),
            Start = KeyForm.Of(arguments, arguments.GetValue(Start) ?? ""),
            End = KeyForm.Of(arguments, arguments.GetValue(End) ?? ""),
            WithLife = true,
            Read = ReadOption.Of(arguments),
        };
        await using var client = Globals.ClientOf(arguments);
        if (!output.IsJson)
            ExportLine.PrintHeader(output);
        var (withOwned, leftOut) = (arguments.GetValue(Owned), 0L);
        await foreach (var entry in client.ScanAsync(scan, stop))
        {
            // The time of a key may be over before it ends.
            if (entry.Life.Left <= TimeSpan.Zero)
                continue;
            if (entry.Life.Owner is not null && !withOwned)
                leftOut++;
            else if (output.IsJson)
                // Who asks for keys that sessions own wants them imported, and import leaves out those with an owner.
                output.Document(EntryDocument.Of(entry.Key.Span, entry.Value.Span, entry.Etag).With(entry.Life with { Owner = null }).ToFields());
            else
                ExportLine.Print(output, entry);
        }
        if (leftOut > 0)
            StandardError.Tell($"keys left out because sessions own them: {Text.Number(leftOut)}. With --owned they are exported, too.");
        return ExitCodes.Done;
    }
}
