using System.Globalization;
using System.Text;
using System.Text.Unicode;
using KvCluster.Client;

namespace KvCluster.Cli.Files;

/// <summary>
/// Reads a transaction in etcdctl's notation: lines of compares, an empty line, lines of operations if all compares hold, an empty line, lines of operations if
/// not. Words are separated by spaces; those with spaces are in double quotes, with \" and \\ inside.
/// </summary>
/// <exception cref="CliException">From every method: a line is wrong, and nothing was sent.</exception>
internal static class TransactionText
{
    private const string Compares = "value(\"KEY\") = \"TEXT\", etag(\"KEY\") = \"ETAG\", ver(\"KEY\") = \"0\" (absent) or > \"0\" (exists), count(\"START\", "
        + "\"END\") = \"N\", member(\"SET\", \"MEMBER\") = \"1\" or \"0\"";
    private const string Operations = "get KEY [END], put KEY VALUE [TTL], del KEY [END], incr KEY [BY], touch KEY [TTL], sadd SET MEMBER, srem SET [MEMBER]";

    private const string Spaces = " \t";

    /// <summary>What ends a name between the parentheses of a compare.</summary>
    private const string EndsOfNames = " \t,)";

    private static ReadOnlySpan<byte> ByteOrderMark => "\uFEFF"u8;

    /// <summary>The text of an input. What is not UTF-8 cannot be written in this notation.</summary>
    public static string Decode(ReadOnlySpan<byte> input)
    {
        if (input.StartsWith(ByteOrderMark))
            input = input[ByteOrderMark.Length..];
        var number = 0;
        foreach (var line in input.Split((byte)'\n'))
        {
            number++;
            if (!Utf8.IsValid(input[line]))
                throw Wrong(number, "it is not UTF-8; set other keys by load, and other values by put with @FILE");
        }
        return Encoding.UTF8.GetString(input);
    }

    /// <summary>The transaction of a text.</summary>
    public static KvTransaction Parse(string text)
    {
        var transaction = new KvTransaction();
        var part = 0;
        var number = 0;
        foreach (var whole in text.Split('\n'))
        {
            // Only a line feed ends a line. Values may contain any other character that ends lines elsewhere.
            var line = whole.EndsWith('\r') ? whole[..^1] : whole;
            number++;
            if (line.AsSpan().Trim(Spaces).IsEmpty)
                part++;
            else if (part == 0)
                AddCompare(transaction, line, number);
            else if (part <= 2)
                AddOperation(part == 1 ? transaction.Then : transaction.Else, Words(line, 0, number), number);
            else
                throw Wrong(number, "there are three parts, and this line follows the third one");
        }
        return transaction.Then.Count + transaction.Else.Count > 0 ? transaction : throw Wrong(number, "the transaction has no operation");
    }

    private static void AddCompare(KvTransaction transaction, string line, int number)
    {
        var at = line.IndexOf('(', StringComparison.Ordinal);
        if (at < 0)
            throw Wrong(number, $"it is no compare; use {Compares}");
        var kind = line[..at++].Trim();
        var names = new List<string>();
        while (at < line.Length && line[at] != ')')
        {
            if (EndsOfNames.Contains(line[at], StringComparison.Ordinal))
                at++;
            else
                names.Add(Word(line, ref at, EndsOfNames, number));
        }
        var rest = at < line.Length ? Words(line, at + 1, number) : [];
        if (names.Count == 0 || rest.Count != 2)
            throw Wrong(number, $"it is no compare; use {Compares}");
        var key = Text.ToBytes(names[0]);
        var (relation, operand) = (RelationOf(rest[0], number), rest[1]);
        transaction.If((kind, names.Count) switch
        {
            ("value" or "val", 1) => KvCondition.Value(relation, Text.ToBytes(operand), key),
            ("etag" or "mod", 1) when Etag.TryParse(operand, null, out var etag) => KvCondition.Etag(relation, etag, key),
            ("ver" or "version" or "create" or "c", 1) when operand == "0" && relation == KvRelation.Equal => KvCondition.Absent(key),
            ("ver" or "version" or "create" or "c", 1) when operand == "0" && relation is KvRelation.Greater or KvRelation.NotEqual => KvCondition.Exists(key),
            ("count", 2) when relation == KvRelation.Equal && ulong.TryParse(operand, NumberStyles.None, CultureInfo.InvariantCulture, out var keys) =>
                KvCondition.Range(key, Text.ToBytes(names[1]), keys),
            ("member", 2) when relation == KvRelation.Equal && operand is "0" or "1" =>
                operand == "1" ? KvCondition.SetHas(key, Text.ToBytes(names[1])) : KvCondition.SetLacks(key, Text.ToBytes(names[1])),
            _ => throw Wrong(number, $"it is no compare; use {Compares}"),
        });
    }

    private static void AddOperation(KvOperations operations, List<string> words, int number)
    {
        var key = Text.ToBytes(words.ElementAtOrDefault(1) ?? "");
        _ = words switch
        {
            ["get", _] => operations.Get(key),
            ["get", _, var end] => operations.Scan(key, Text.ToBytes(end)),
            ["put", _, var value] => operations.Put(key, Text.ToBytes(value)),
            ["put", _, var value, var ttl] =>
                operations.Put(key, Text.ToBytes(value), new KvPutOptions { TimeToLive = TimeToLive.Parse($"line {number}: the lifetime", ttl) }),
            ["del", _] => operations.Delete(key),
            ["del", _, { Length: > 0 } end] => operations.DeleteRange(key, Text.ToBytes(end)),
            ["incr", _] => operations.Increment(key),
            ["incr", _, var by] when long.TryParse(by, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var added) =>
                operations.Increment(key, added),
            ["touch", _] => operations.Touch(key, null),
            ["touch", _, var ttl] => operations.Touch(key, TimeToLive.Parse($"line {number}: the lifetime", ttl)),
            ["sadd", _, var member] => operations.SetAdd(key, Text.ToBytes(member)),
            ["srem", _] => operations.SetRemove(key),
            ["srem", _, { Length: > 0 } member] => operations.SetRemove(key, Text.ToBytes(member)),
            _ => throw Wrong(number, $"it is no operation; use {Operations}"),
        };
    }

    private static KvRelation RelationOf(string text, int number) => text switch
    {
        "=" or "==" => KvRelation.Equal,
        "!=" => KvRelation.NotEqual,
        "<" => KvRelation.Less,
        ">" => KvRelation.Greater,
        _ => throw Wrong(number, $"'{text}' is no relation; use =, !=, < or >"),
    };

    private static List<string> Words(string line, int from, int number)
    {
        var words = new List<string>();
        for (var at = from; at < line.Length;)
        {
            if (Spaces.Contains(line[at], StringComparison.Ordinal))
                at++;
            else
                words.Add(Word(line, ref at, Spaces, number));
        }
        return words;
    }

    private static string Word(string line, ref int at, string ends, int number)
    {
        if (line[at] == '"')
            return Quoted(line, ref at, ends, number);
        var begin = at;
        while (at < line.Length && !ends.Contains(line[at], StringComparison.Ordinal))
            at++;
        return line[begin..at];
    }

    private static string Quoted(string line, ref int at, string ends, int number)
    {
        var word = new StringBuilder();
        for (at++; at < line.Length; at++)
        {
            if (line[at] == '"')
            {
                at++;
                return at == line.Length || ends.Contains(line[at], StringComparison.Ordinal)
                    ? word.ToString()
                    : throw Wrong(number, "something follows a word in quotes without a space");
            }
            if (line[at] == '\\' && (++at == line.Length || line[at] is not ('"' or '\\')))
                throw Wrong(number, "a backslash in quotes is neither before a quote nor before another backslash");
            word.Append(line[at]);
        }
        throw Wrong(number, "a word in quotes does not end");
    }

    private static CliException Wrong(int number, string what) => new(ExitCodes.Usage, $"line {number}: {what}. Nothing was applied.");
}
