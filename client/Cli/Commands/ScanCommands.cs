using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>The commands for ranges of keys: `kv scan` and `kv count`.</summary>
internal static class ScanCommands
{
    public static Command Scan()
    {
        var prefix = new Argument<string>("PREFIX") { Description = "Only keys with this prefix; without it, all keys.", DefaultValueFactory = _ => "" };
        var start = new Option<string?>("--start") { Description = "Start of the range, inclusive.", HelpName = "KEY" };
        var end = new Option<string?>("--end") { Description = "End of the range, exclusive.", HelpName = "KEY" };
        var limit = new Option<ulong>("--limit") { Description = "Maximum number of entries; 0 means all.", HelpName = "N" };
        var reverse = new Option<bool>("--reverse") { Description = "Descending order, from the last key of the range." };
        var keysOnly = new Option<bool>("--keys-only") { Description = "Print only the keys." };
        return CliCommand.CreateReader(
            "scan", "Print entries in key order, one per line: key, tab, value.",
            [prefix, start, end, limit, reverse, keysOnly, RawLines.Raw, ReadOption.Mode, .. KeyForm.All],
            async (arguments, output, stop) =>
            {
                var range = new KvScan
                {
                    Prefix = KeyForm.Of(arguments, arguments.GetRequiredValue(prefix)),
                    Start = KeyForm.Of(arguments, arguments.GetValue(start) ?? ""),
                    End = KeyForm.Of(arguments, arguments.GetValue(end) ?? ""),
                    Limit = arguments.GetValue(limit),
                    Reverse = arguments.GetValue(reverse),
                    KeysOnly = arguments.GetValue(keysOnly),
                    WithLife = output.IsJson,
                    Read = ReadOption.Of(arguments),
                };
                var isRaw = RawLines.Of(arguments, output);
                await using var client = Globals.ClientOf(arguments);
                await foreach (var entry in client.ScanAsync(range, stop))
                    Print(output, entry, range.KeysOnly, isRaw);
                return ExitCodes.Done;
            });
    }

    public static Command Count()
    {
        var prefix = new Argument<string>("PREFIX") { Description = "Only keys with this prefix; without it, all keys.", DefaultValueFactory = _ => "" };
        return CliCommand.CreateReader(
            "count", "Print the number of keys, all or those with a prefix.", [prefix, ReadOption.Mode, .. KeyForm.All], async (arguments, output, stop) =>
            {
                var text = arguments.GetRequiredValue(prefix);
                await using var client = Globals.ClientOf(arguments);
                var count = await client.CountAsync(KeyForm.Of(arguments, text), ReadOption.Of(arguments), stop);
                if (output.IsJson)
                    output.Document(new Fields { { "prefix", text }, { "count", count } });
                else
                    output.Line(count.ToString(System.Globalization.CultureInfo.InvariantCulture));
                return ExitCodes.Done;
            });
    }

    private static void Print(Output output, KvEntry entry, bool keysOnly, bool isRaw)
    {
        if (output.IsJson)
        {
            output.Document((keysOnly ? EntryDocument.WithoutValue(entry.Key.Span, entry.Etag) : EntryDocument.Of(entry.Key.Span, entry.Value.Span, entry.Etag))
                .With(entry.Life).ToFields());
            return;
        }

        if (keysOnly || !output.IsValueOnly)
            output.Field(entry.Key.Span, isRaw);
        if (!keysOnly && !output.IsValueOnly)
            output.Bytes("\t"u8);
        if (!keysOnly)
            output.Field(entry.Value.Span, isRaw);
        output.Bytes("\n"u8);
    }
}
