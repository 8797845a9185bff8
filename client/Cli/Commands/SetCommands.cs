using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv set`: the commands for sets.</summary>
internal static class SetCommands
{
    private static readonly Argument<string> Key = new("SET") { Description = "The key of the set." };
    private static readonly Argument<string[]> Members =
        new("MEMBER") { Description = "Members: 1 to 1,024 bytes of UTF-8 each.", Arity = ArgumentArity.OneOrMore };

    public static Command Create() => new("set", "Commands for sets: members in order, each once.") { Add(), Remove(), List(), Count(), Intersect() };

    private static Command Add() =>
        CliCommand.Create("add", "Add members to a set, and print how many were not there.", [Key, Members], async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments);
            var result = await client.Sets.AddAsync(
                Text.ToBytes(arguments.GetRequiredValue(Key)), MembersOf(arguments.GetRequiredValue(Members)), cancellationToken: stop);
            Print(output, result);
            return ExitCodes.Done;
        });

    private static Command Remove()
    {
        var members = new Argument<string[]>("MEMBER") { Description = "Members to remove.", Arity = ArgumentArity.ZeroOrMore };
        var all = new Option<bool>("--all") { Description = "Remove the set with all its members." };
        return CliCommand.Create("remove", "Remove members from a set, and print how many were there.", [Key, members, all], async (arguments, output, stop) =>
        {
            var given = arguments.GetValue(members) ?? [];
            if (arguments.GetValue(all) == given.Length > 0)
                throw new CliException(ExitCodes.Usage, "set remove takes either members or --all.");
            await using var client = Globals.ClientOf(arguments);
            var key = Text.ToBytes(arguments.GetRequiredValue(Key));
            Print(output, given.Length == 0 ? await client.Sets.RemoveAllAsync(key, cancellationToken: stop)
                : await client.Sets.RemoveAsync(key, MembersOf(given), cancellationToken: stop));
            return ExitCodes.Done;
        });
    }

    private static Command List()
    {
        var prefix = new Option<string?>("--prefix") { Description = "Only members with this prefix.", HelpName = "PREFIX" };
        var start = new Option<string?>("--start") { Description = "First member, inclusive.", HelpName = "MEMBER" };
        var limit = new Option<ulong>("--limit") { Description = "Maximum number of members; 0 means all.", HelpName = "N" };
        var reverse = new Option<bool>("--reverse") { Description = "Descending order, from the last member." };
        return CliCommand.CreateReader(
            "members", "Print the members of a set in order, one per line.", [Key, prefix, start, limit, reverse, RawLines.Raw, ReadOption.Mode],
            async (arguments, output, stop) =>
            {
                var isRaw = RawLines.Of(arguments, output);
                await using var client = Globals.ClientOf(arguments);
                var scan = new KvSetScan
                {
                    Prefix = Text.ToBytes(arguments.GetValue(prefix) ?? ""),
                    Start = Text.ToBytes(arguments.GetValue(start) ?? ""),
                    Limit = arguments.GetValue(limit),
                    Reverse = arguments.GetValue(reverse),
                    Read = ReadOption.Of(arguments),
                };
                await foreach (var member in client.Sets.ScanAsync(Text.ToBytes(arguments.GetRequiredValue(Key)), scan, stop))
                    PrintMember(output, member.Span, isRaw);
                return ExitCodes.Done;
            });
    }

    private static Command Count() => CliCommand.CreateReader(
        "count", "Print the number of members of a set; 0 if there is no such set.", [Key, ReadOption.Mode], async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments);
            var key = arguments.GetRequiredValue(Key);
            var count = await client.Sets.CountAsync(Text.ToBytes(key), ReadOption.Of(arguments), stop);
            if (output.IsJson)
                output.Document(new Fields { { "set", key }, { "count", count } });
            else
                output.Line(count.ToString(CultureInfo.InvariantCulture));
            return ExitCodes.Done;
        });

    private static Command Intersect()
    {
        var keys = new Argument<string[]>("SET") { Description = "The keys of 1 to 64 sets of one shard.", Arity = ArgumentArity.OneOrMore };
        var facets = new Option<string[]>("--facets") { Description = "For each set below this prefix, count its members in the intersection. "
            + "Can be given more than once.", HelpName = "PREFIX" };
        var facetsMax = new Option<int>(
            "--facets-max") { Description = "Maximum number of facets for each prefix, the largest first.", HelpName = "N", DefaultValueFactory = _ => 10 };
        var start = new Option<string?>("--start") { Description = "First member printed, inclusive.", HelpName = "MEMBER" };
        var limit = new Option<int>(
            "--limit") { Description = "Maximum number of members printed, up to 10,000.", HelpName = "N", DefaultValueFactory = _ => 1_000 };
        return CliCommand.CreateReader(
            "intersect", "Print what sets have in common, one member per line, then facets with their counts.",
            [keys, facets, facetsMax, start, limit, RawLines.Raw, ReadOption.Mode], async (arguments, output, stop) =>
            {
                var prefixes = arguments.GetValue(facets) ?? [];
                var isRaw = RawLines.Of(arguments, output);
                await using var client = Globals.ClientOf(arguments);
                var result = await client.Sets.IntersectAsync(
                    new KvIntersection
                    {
                        Keys = [.. arguments.GetRequiredValue(keys).Select(Text.ToBytes)],
                        FacetPrefixes = [.. prefixes.Select(Text.ToBytes)],
                        FacetsMax = arguments.GetValue(facetsMax),
                        Start = Text.ToBytes(arguments.GetValue(start) ?? ""),
                        Limit = arguments.GetValue(limit),
                        Read = ReadOption.Of(arguments),
                    },
                    stop);
                if (output.IsJson)
                    output.Document(DocumentOf(result, prefixes));
                else
                    PrintText(output, result, isRaw);
                return ExitCodes.Done;
            });
    }

    private static Fields DocumentOf(IntersectResult result, string[] prefixes) => new Fields
    {
        { "count", result.Count },
        { "members", result.Members.Select(static member => ToDocument(member.Span)) },
        { "more", result.More },
        { "facets", result.Facets.Select((of, index) => new Fields
        {
            { "prefix", prefixes[index] },
            { "sets_found", of.SetsFound },
            { "sets", of.Sets.Select(static facet =>
            {
                var (set, base64) = Text.ForJson(facet.Key.Span);
                return new Fields { { "set", set }, { "set_base64", base64 }, { "count", facet.Count } };
            }) },
        }) },
    };

    private static void PrintText(Output output, IntersectResult result, bool isRaw)
    {
        foreach (var member in result.Members)
            PrintMember(output, member.Span, isRaw);
        foreach (var facet in result.Facets.SelectMany(static facets => facets.Sets))
        {
            output.Field(facet.Key.Span, isRaw);
            output.Bytes(Text.ToBytes($"\t{facet.Count.ToString(CultureInfo.InvariantCulture)}\n").Span);
        }
    }

    private static IEnumerable<KvKey> MembersOf(string[] texts) => texts.Select(static text => (KvKey)Text.ToBytes(text));

    private static void PrintMember(Output output, ReadOnlySpan<byte> member, bool isRaw)
    {
        if (output.IsJson)
        {
            output.Document(ToDocument(member));
            return;
        }
        output.Field(member, isRaw);
        output.Bytes("\n"u8);
    }

    private static void Print(Output output, SetChangeResult result)
    {
        if (output.IsJson)
            output.Document(new Fields { { "changed", result.Changed }, { "shard", result.Position.Shard }, { "etag", result.Position.Etag.ToString() } });
        else
            output.Line(result.Changed.ToString(CultureInfo.InvariantCulture));
    }

    // A member in JSON, with bytes as in EntryDocument.
    private static Fields ToDocument(ReadOnlySpan<byte> member)
    {
        var (text, base64) = Text.ForJson(member);
        return new Fields { { "member", text }, { "member_base64", base64 } };
    }
}
