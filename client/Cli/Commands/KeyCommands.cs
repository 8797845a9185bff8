using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>The commands for one key: `kv get`, `kv put` and `kv delete`.</summary>
internal static class KeyCommands
{
    private const string IfEtagName = "--if-etag";
    private const string IfAbsentName = "--if-absent";
    private const string IfExistsName = "--if-exists";
    private const string IfValueName = "--if-value";

    private static readonly Argument<string> Key = new("KEY") { Description = "The key: 1 to 2,048 bytes of UTF-8." };
    private static readonly Argument<string[]> Keys =
        new("KEY") { Description = "The keys: 1 to 2,048 bytes of UTF-8 each.", Arity = ArgumentArity.OneOrMore };
    private static readonly Option<string?> IfEtag =
        new(IfEtagName) { Description = "Apply only if this is the etag of the key: its value was set by that change.", HelpName = "ETAG" };
    private static readonly Option<string?> Seen =
        new("--seen") { Description = "With --read session: the answer includes the change with this etag, which put or delete printed.", HelpName = "ETAG" };
    private static readonly Option<bool> Raw = new("--raw") { Description = "Print exactly the bytes of the value, without a line feed at the end." };
    private static readonly Option<string?> Out =
        new("--out") { Description = "Write exactly the bytes of the value to this file instead of standard output.", HelpName = "FILE" };
    private static readonly Option<bool> IfAbsent = new(IfAbsentName) { Description = "Apply only if the key does not exist." };
    private static readonly Option<bool> IfExists = new(IfExistsName) { Description = "Apply only if the key exists." };
    private static readonly Option<string?> IfValue =
        new(IfValueName) { Description = "Apply only if the key has exactly this value (text).", HelpName = "VALUE" };

    private static readonly Option<double?> Ttl = Globals.SecondsOption("--ttl", "How long the key lives. Without it, until it is deleted.");
    private static readonly Option<string?> Owner =
        new("--owner") { Description = "A session with which the key ends, as `kv session open` printed it.", HelpName = "SESSION" };
    private static readonly Option<bool> KeepTtl =
        new("--keep-ttl") { Description = "The key keeps the time to live that it has; without this option and --ttl it lives until it is deleted." };
    private static readonly Option<bool> KeepOwner =
        new("--keep-owner") { Description = "The key keeps the session that owns it; without this option and --owner no session does." };
    private static readonly Option<bool> Meta = new("--meta") { Description = "Print what is known of the key instead of its value: "
        + "etag, bytes, the seconds that it lives, and the session that owns it." };
    private static readonly Option<bool> Sequence = new("--sequence") { Description = "Append the next number to the key, and print the new key." };
    private static readonly (Option<bool> Option, KvNearest Nearest)[] Nearest =
    [
        (new("--floor") { Description = "The greatest key that is not greater than KEY." }, KvNearest.Floor),
        (new("--lower") { Description = "The greatest key that is less than KEY." }, KvNearest.Lower),
        (new("--ceiling") { Description = "The least key that is not less than KEY." }, KvNearest.Ceiling),
        (new("--higher") { Description = "The least key that is greater than KEY." }, KvNearest.Higher),
    ];

    private static readonly Option<string?> Within =
        new("--within") { Description = "With --floor and its siblings: only a key with this prefix.", HelpName = "PREFIX" };

    public static Command Get() => CliCommand.CreateReader(
        "get",
        "Print the value of a key, or of the nearest key with that key before it; of several keys a line each: key, tab, value. "
        + "The exit code is 1 if there is none, or if one of several does not exist.",
        [Keys, Raw, Out, Meta, ReadOption.Mode, Seen, .. Nearest.Select(static one => one.Option), Within, .. KeyForm.All], (arguments, output, stop) =>
        {
            var keys = KeysOf(arguments);
            return keys.Count == 1 ? GetAsync(arguments, keys[0], output, stop) : GetSeveralAsync(arguments, keys, output, stop);
        });

    private static async Task<int> GetAsync(ParseResult arguments, ReadOnlyMemory<byte> key, Output output, CancellationToken stop)
    {
        var file = ValueFileOf(arguments, output);
        var client = ClientOf(arguments, isForOneRead: true);
        if (arguments.GetValue(Seen) is { } seen)
            client.Observe(new ShardPosition(await ShardOfAsync(client, key, stop), ParseEtag("--seen", seen)));
        var nearest = NearestOf(arguments);
        var within = KeyForm.Of(arguments, arguments.GetValue(Within) ?? "");
        var options = OptionsOf(arguments, output);
        var result = await OfKeyAsync(
            key, () => nearest is { } which ? client.GetNearestAsync(key, which, within, options, stop) : client.GetAsync(key, options, stop));
        if (output.IsJson)
            output.Document(GetDocument.Of(nearest is not null && result.Found ? result.Key.Span : key.Span, result).ToFields());
        else if (result.Found && arguments.GetValue(Meta))
            PrintMeta(output, nearest is null ? key.Span : result.Key.Span, result);
        else if (result.Found && file is not null)
            ValueFile.Write("--out", file, result.Value.Span);
        else if (result.Found && nearest is not null && !output.IsValueOnly)
            PrintLine(output, result.Key.Span, result.Value.Span, arguments.GetValue(Raw));
        else if (result.Found)
            PrintValue(output, result.Value.Span, arguments.GetValue(Raw));
        return result.Found
            ? ExitCodes.Done
            : throw new CliException(
                ExitCodes.NotFound,
                nearest is null ? $"{Text.ForPeople(key.Span)} does not exist." : $"There is no such key near {Text.ForPeople(key.Span)}.");
    }

    private static async Task<int> GetSeveralAsync(ParseResult arguments, List<ReadOnlyMemory<byte>> keys, Output output, CancellationToken stop)
    {
        RefuseWithSeveral(arguments, [Out, Seen, .. Nearest.Select(static one => one.Option), Within]);
        ValueFileOf(arguments, output);
        var client = ClientOf(arguments);
        var results = await client.GetManyAsync(keys.ConvertAll(static key => (KvKey)key), OptionsOf(arguments, output), stop);
        foreach (var (key, result) in keys.Zip(results))
        {
            if (output.IsJson)
                output.Document(GetDocument.Of(key.Span, result).ToFields());
            else if (result.Found)
                PrintOneOfSeveral(arguments, output, key.Span, result);
        }
        foreach (var (key, _) in keys.Zip(results).Where(static one => !one.Second.Found))
            StandardError.Tell($"{Text.ForPeople(key.Span)} does not exist.");
        return results.All(static result => result.Found) ? ExitCodes.Done : ExitCodes.NotFound;
    }

    private static void PrintOneOfSeveral(ParseResult arguments, Output output, ReadOnlySpan<byte> key, in GetResult result)
    {
        if (arguments.GetValue(Meta))
            PrintMeta(output, key, result);
        else if (arguments.GetValue(Raw))
            output.Bytes(result.Value.Span);
        else if (output.IsValueOnly)
            PrintLine(output, result.Value.Span, isRaw: false);
        else
            PrintLine(output, key, result.Value.Span, isRaw: false);
    }

    private static KvGetOptions OptionsOf(ParseResult arguments, Output output) =>
        new() { Read = ReadOption.Of(arguments), WithLife = output.IsJson || arguments.GetValue(Meta) };

    private static List<ReadOnlyMemory<byte>> KeysOf(ParseResult arguments) =>
        [.. arguments.GetRequiredValue(Keys).Select(text => KeyForm.Of(arguments, text))];

    private static void RefuseWithSeveral(ParseResult arguments, IEnumerable<Option> options)
    {
        if (options.FirstOrDefault(option => arguments.GetResult(option) is { Implicit: false }) is { } single)
            throw new CliException(ExitCodes.Usage, $"{single.Name} is of one KEY.");
    }

    private static void PrintLine(Output output, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool isRaw)
    {
        output.Field(key, isRaw);
        output.Bytes("\t"u8);
        if (isRaw)
            output.Bytes(value);
        else
            PrintLine(output, value, isRaw);
    }

    private static void PrintLine(Output output, ReadOnlySpan<byte> field, bool isRaw)
    {
        output.Field(field, isRaw);
        output.Bytes("\n"u8);
    }

    // A line for each fact.
    private static void PrintMeta(Output output, ReadOnlySpan<byte> key, in GetResult result)
    {
        output.Bytes("key\t"u8);
        PrintLine(output, key, isRaw: false);
        PrintFact("etag", result.Etag.ToString());
        PrintFact("bytes", Text.Number(result.Value.Length));
        PrintFact("ttl", result.Life.Left is { } left ? Text.Seconds(left) : "none");
        PrintFact("owner", result.Life.Owner is { } owner ? owner.ToString() : "none");

        void PrintFact(string name, string fact) => output.Bytes(Text.ToBytes($"{name}\t{fact}\n").Span);
    }

    private static KvNearest? NearestOf(ParseResult arguments)
    {
        var given = Nearest.Where(one => arguments.GetValue(one.Option)).ToList();
        if (given.Count > 1)
            throw new CliException(ExitCodes.Usage, $"{string.Join(" and ", given.Select(one => one.Option.Name))} exclude each other.");
        if (given.Count == 0 && arguments.GetValue(Within) is not null)
            throw new CliException(ExitCodes.Usage, "--within requires --floor, --lower, --ceiling or --higher.");
        return given.Count == 1 ? given[0].Nearest : null;
    }

    public static Command Put()
    {
        var value = new Argument<string>(
            "VALUE") { Description = "The value: up to 8 MiB. @FILE reads it from a file, - from standard input, and @@TEXT stands for @TEXT." };
        return CliCommand.Create(
            "put", "Set a key, and print the etag of the change when it is durable on a majority of the replicas.",
            [Key, value, IfEtag, IfAbsent, IfExists, IfValue, Ttl, KeepTtl, Owner, KeepOwner, Sequence, .. KeyForm.All], async (arguments, output, stop) =>
            {
                var key = KeyForm.Of(arguments, arguments.GetRequiredValue(Key));
                var (option, condition) = ConditionOf(arguments);
                var bytes = await ValueFile.ReadArgumentAsync(arguments.GetRequiredValue(value), KvLimits.ValueBytesMax, stop);
                var client = ClientOf(arguments);
                var terms = new KvPutOptions
                {
                    Condition = condition,
                    TimeToLive = TimeToLive.Of(arguments, Ttl),
                    Owner = arguments.GetValue(Owner) is { } owner ? SessionCommands.Parse("--owner", key, owner) : null,
                    Sequence = arguments.GetValue(Sequence),
                    KeepExpiry = arguments.GetValue(KeepTtl),
                    KeepOwner = arguments.GetValue(KeepOwner),
                };
                CheckTerms(terms);
                var result = await OfKeyAsync(key, () => client.PutAsync(key, bytes, terms, stop), option);
                if (terms.Sequence)
                    PrintKey(output, result);
                else
                    PrintPosition(output, result.Position, existed: null);
                return ExitCodes.Done;
            });
    }

    private static void CheckTerms(KvPutOptions terms)
    {
        if (terms is { KeepExpiry: true, TimeToLive: not null })
            throw new CliException(ExitCodes.Usage, "--keep-ttl and --ttl exclude each other.");
        if (terms is { KeepOwner: true, Owner: not null })
            throw new CliException(ExitCodes.Usage, "--keep-owner and --owner exclude each other.");
        if (terms.Sequence && (terms.KeepExpiry || terms.KeepOwner))
            throw new CliException(ExitCodes.Usage, "--sequence makes a new key, so there is nothing to keep.");
    }

    public static Command Delete() => CliCommand.Create(
        "delete",
        "Remove keys, one after the other, and print the etag of each change. It is not an error if a key does not exist.",
        [Keys, IfEtag, IfAbsent, IfExists, IfValue, .. KeyForm.All], async (arguments, output, stop) =>
        {
            var keys = KeysOf(arguments);
            if (keys.Count > 1)
                RefuseWithSeveral(arguments, [IfEtag, IfAbsent, IfExists, IfValue]);
            var (option, condition) = ConditionOf(arguments);
            var client = ClientOf(arguments);
            foreach (var key in keys)
            {
                var result = await OfKeyAsync(key, () => client.DeleteAsync(key, condition, stop), option);
                if (output.IsJson && keys.Count > 1)
                    PrintRemoved(output, key.Span, result);
                else
                    PrintPosition(output, result.Position, result.Existed);
                // On standard error, because scripts read the etag from standard output.
                if (!output.IsJson)
                    StandardError.Tell(result.Existed ? $"{Text.ForPeople(key.Span)} existed and was removed." : $"{Text.ForPeople(key.Span)} did not exist.");
            }
            return ExitCodes.Done;
        });

    private static void PrintRemoved(Output output, ReadOnlySpan<byte> bytes, in DeleteResult result)
    {
        var (key, base64) = Text.ForJson(bytes);
        output.Document(new Fields
        {
            { "key", key },
            { "key_base64", base64 },
            { "shard", result.Position.Shard },
            { "etag", result.Position.Etag.ToString() },
            { "existed", result.Existed },
        });
    }

    // Not disposed: the process ends with the command, and the system closes its connections. An orderly end of all calls would take a sixth of the command's
    // time.
    private static KvClient ClientOf(ParseResult arguments, bool isForOneRead = false) => Globals.ClientOf(arguments, isForOneRead: isForOneRead);

    /// <summary>Makes a call for one key. Failures name the key, and the option whose condition did not hold.</summary>
    /// <exception cref="CliException">The call failed.</exception>
    private static async Task<T> OfKeyAsync<T>(ReadOnlyMemory<byte> key, Func<ValueTask<T>> call, string? conditionOption = null)
    {
        try
        {
            return await call();
        }
        catch (KvConditionFailedException) when (conditionOption is not null)
        {
            throw new CliException(
                ExitCodes.ConditionFailed, $"{conditionOption}: {Text.ForPeople(key.Span)} {ContradictionOf(conditionOption)}. Nothing was changed.");
        }
        catch (KvException failure)
        {
            var (exitCode, line) = Failures.Describe(failure);
            throw new CliException(exitCode, $"{Text.ForPeople(key.Span)}: {line}");
        }
    }

    private static string ContradictionOf(string conditionOption) => conditionOption switch
    {
        IfAbsentName => "exists",
        IfExistsName => "does not exist",
        IfEtagName => "has a different etag or does not exist",
        _ => "has a different value or does not exist",
    };

    /// <summary>The file that gets the value; null for standard output.</summary>
    /// <exception cref="CliException">The options exclude each other.</exception>
    private static string? ValueFileOf(ParseResult arguments, Output output)
    {
        var file = arguments.GetValue(Out);
        if (file is { Length: 0 })
            throw new CliException(ExitCodes.Usage, "--out requires the name of a file.");
        if (arguments.GetValue(Meta) && (file is not null || arguments.GetValue(Raw)))
            throw new CliException(ExitCodes.Usage, $"--meta is printed instead of the value, so it cannot be used with {(file is null ? "--raw" : "--out")}.");
        return output.IsJson && (file is not null || arguments.GetValue(Raw))
            ? throw new CliException(
                ExitCodes.Usage, $"{(file is null ? "--raw" : "--out")} writes the bytes of the value, so it cannot be used with --output json.")
            : file;
    }

    private static async Task<uint> ShardOfAsync(KvClient client, ReadOnlyMemory<byte> key, CancellationToken stop) =>
        await client.FindShardAsync(key, stop)
            ?? throw new CliException(ExitCodes.Unavailable, "The shard map could not be read, so the shard of --seen is not known. Nothing was read.");

    private static Etag ParseEtag(string option, string text) =>
        Etag.TryParse(text, null, out var etag) ? etag
            : throw new CliException(ExitCodes.Usage, $"{option} '{text}' is not an etag: 36 characters such as {default(Etag)}.");

    private static void PrintValue(Output output, ReadOnlySpan<byte> value, bool raw)
    {
        if (raw)
        {
            output.Bytes(value);
            return;
        }
        output.Data(value);
        output.Bytes("\n"u8);
    }

    private static void PrintKey(Output output, in PutResult result)
    {
        if (output.IsJson)
        {
            output.Document(EntryDocument.WithoutValue(result.Key.Span, result.Position.Etag).ToFields());
            return;
        }
        PrintLine(output, result.Key.Span, isRaw: false);
    }

    private static void PrintPosition(Output output, ShardPosition position, bool? existed)
    {
        if (output.IsJson)
            output.Document(new Fields { { "shard", position.Shard }, { "etag", position.Etag.ToString() }, { "existed", existed } });
        else
            output.Line(position.Etag.ToString());
    }

    private static (string? Option, KvCondition? Condition) ConditionOf(ParseResult arguments)
    {
        var conditions = new List<(string? Option, KvCondition? Condition)>();
        if (arguments.GetValue(IfEtag) is { } text)
            conditions.Add((IfEtagName, KvCondition.EtagEquals(ParseEtag(IfEtagName, text))));
        if (arguments.GetValue(IfAbsent))
            conditions.Add((IfAbsentName, KvCondition.Absent()));
        if (arguments.GetValue(IfExists))
            conditions.Add((IfExistsName, KvCondition.Exists()));
        if (arguments.GetValue(IfValue) is { } value)
            conditions.Add((IfValueName, KvCondition.ValueEquals(Text.ToBytes(value))));
        return conditions.Count <= 1
            ? conditions.SingleOrDefault()
            : throw new CliException(
                ExitCodes.Usage, $"{string.Join(" and ", conditions.Select(one => one.Option))} exclude each other. A command takes one condition.");
    }
}
