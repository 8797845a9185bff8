using System.Globalization;
using System.Text;
using KvCluster.Client;

namespace KvCluster.Cli.Files;

/// <summary>
/// Reads a transaction in etcdctl's notation: lines of compares, an empty line, lines of operations if all compares hold, an empty line, lines of operations if not. Words are
/// separated by spaces; those with spaces are in double quotes, with \" and \\ inside.
/// </summary>
/// <exception cref="CliException">From every method: a line is wrong, and nothing was sent.</exception>
internal static class TransactionText
{
    private const string Compares = "value(\"KEY\") = \"TEXT\", etag(\"KEY\") = \"ETAG\", ver(\"KEY\") = \"0\" (absent) or > \"0\" (exists), count(\"START\", \"END\") = \"N\", member(\"SET\", \"MEMBER\") = \"1\" or \"0\"";
    private const string Operations = "get KEY [END], put KEY VALUE [TTL], del KEY [END], incr KEY [BY], touch KEY [TTL], sadd SET MEMBER, srem SET [MEMBER]";

    /// <summary>The transaction of a text.</summary>
    public static KvTransaction Parse(string text)
    {
        var transaction = new KvTransaction();
        var part = 0;
        var number = 0;
        foreach (var line in text.ReplaceLineEndings("\n").Split('\n'))
        {
            number++;
            if (line.Trim().Length == 0)
                part++;
            else if (part == 0)
                AddCompare(transaction, line, number);
            else if (part <= 2)
                AddOperation(part == 1 ? transaction.Then : transaction.Else, Words(line, number), number);
            else
                throw Wrong(number, "there are three parts, and this line follows the third one");
        }
        return transaction.Then.Count + transaction.Else.Count > 0 ? transaction : throw Wrong(number, "the transaction has no operation");
    }

    private static void AddCompare(KvTransaction transaction, string line, int number)
    {
        var open = line.IndexOf('(', StringComparison.Ordinal);
        var close = line.LastIndexOf(')');
        if (open < 0 || close < open)
            throw Wrong(number, $"it is no compare; use {Compares}");
        var names = Words(line[(open + 1)..close].Replace(',', ' '), number);
        var rest = Words(line[(close + 1)..], number);
        if (names.Count == 0 || rest.Count != 2)
            throw Wrong(number, $"it is no compare; use {Compares}");
        var key = Text.ToBytes(names[0]);
        var (relation, operand) = (RelationOf(rest[0], number), rest[1]);
        transaction.If(line[..open].Trim() switch
        {
            "value" or "val" => KvCondition.Value(relation, Text.ToBytes(operand), key),
            "etag" or "mod" when Etag.TryParse(operand, null, out var etag) => KvCondition.Etag(relation, etag, key),
            "ver" or "version" or "create" or "c" when operand == "0" && relation == KvRelation.Equal => KvCondition.Absent(key),
            "ver" or "version" or "create" or "c" when operand == "0" && relation is KvRelation.Greater or KvRelation.NotEqual => KvCondition.Exists(key),
            "count" when names.Count == 2 && relation == KvRelation.Equal && ulong.TryParse(operand, NumberStyles.None, CultureInfo.InvariantCulture, out var keys) =>
                KvCondition.Range(key, Text.ToBytes(names[1]), keys),
            "member" when names.Count == 2 && relation == KvRelation.Equal && operand is "0" or "1" =>
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
            ["put", _, var value, var ttl] => operations.Put(key, Text.ToBytes(value), new KvPutOptions { TimeToLive = TimeToLive.Parse($"line {number}: the lifetime", ttl) }),
            ["del", _] => operations.Delete(key),
            ["del", _, var end] => operations.DeleteRange(key, Text.ToBytes(end)),
            ["incr", _] => operations.Increment(key),
            ["incr", _, var by] when long.TryParse(by, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var added) => operations.Increment(key, added),
            ["touch", _] => operations.Touch(key, null),
            ["touch", _, var ttl] => operations.Touch(key, TimeToLive.Parse($"line {number}: the lifetime", ttl)),
            ["sadd", _, var member] => operations.SetAdd(key, Text.ToBytes(member)),
            ["srem", _] => operations.SetRemove(key),
            ["srem", _, var member] => operations.SetRemove(key, Text.ToBytes(member)),
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

    private static List<string> Words(string line, int number)
    {
        var words = new List<string>();
        for (var at = 0; at < line.Length;)
        {
            if (char.IsWhiteSpace(line[at]))
                at++;
            else
                words.Add(line[at] == '"' ? Quoted(line, ref at, number) : Plain(line, ref at));
        }
        return words;
    }

    private static string Plain(string line, ref int at)
    {
        var begin = at;
        while (at < line.Length && !char.IsWhiteSpace(line[at]))
            at++;
        return line[begin..at];
    }

    private static string Quoted(string line, ref int at, int number)
    {
        var word = new StringBuilder();
        for (at++; at < line.Length; at++)
        {
            if (line[at] == '"')
            {
                at++;
                return word.ToString();
            }
            if (line[at] == '\\' && at + 1 < line.Length)
                at++;
            word.Append(line[at]);
        }
        throw Wrong(number, "a word in quotes does not end");
    }

    private static CliException Wrong(int number, string what) => new(ExitCodes.Usage, $"line {number}: {what}. Nothing was applied.");
}
