using System.Text;

namespace KvCluster.Cli.Shell;

/// <summary>
/// Divides a line into words as a shell does: at spaces; between ' everything is meant as it is; between " a backslash stands before " and \; $'...' is what
/// `kv` prints (<see cref="Text.Quoted"/>); elsewhere a backslash takes its meaning from the next character.
/// </summary>
internal static class ShellWords
{
    /// <summary>The words of a line.</summary>
    /// <exception cref="CliException">A quote is not closed, or bytes are not UTF-8.</exception>
    public static List<string> Split(string line)
    {
        var words = new List<string>();
        StringBuilder? word = null;
        for (var at = 0; at < line.Length;)
        {
            if (char.IsWhiteSpace(line[at]))
            {
                if (word is not null)
                    words.Add(word.ToString());
                word = null;
                at++;
                continue;
            }
            var (meant, end) = PartAt(line, at, word is null);
            (word ??= new StringBuilder()).Append(meant);
            at = end;
        }
        if (word is not null)
            words.Add(word.ToString());
        return words;
    }

    private static (string Meant, int End) PartAt(string line, int at, bool isBeginning) => line[at] switch
    {
        '\'' => line.IndexOf('\'', at + 1) is > 0 and var end ? (line[(at + 1)..end], end + 1) : throw NotClosed(line[at..]),
        '"' => Between(line, at),
        '$' when isBeginning && line.AsSpan(at).StartsWith("$'", StringComparison.Ordinal) => Quoted(line, at),
        '\\' when at + 1 < line.Length => (line[(at + 1)..(at + 2)], at + 2),
        var plain => (plain.ToString(), at + 1),
    };

    private static (string Meant, int End) Between(string line, int begin)
    {
        var meant = new StringBuilder();
        for (var at = begin + 1; at < line.Length; at++)
        {
            if (line[at] == '"')
                return (meant.ToString(), at + 1);
            if (line[at] == '\\' && at + 1 < line.Length && line[at + 1] is '"' or '\\')
                at++;
            meant.Append(line[at]);
        }
        throw NotClosed(line[begin..]);
    }

    private static (string Meant, int End) Quoted(string line, int begin)
    {
        for (var at = begin + 2; at < line.Length; at++)
        {
            if (line[at] == '\\')
            {
                at++;
            }
            else if (line[at] == '\'')
            {
                var quoted = line[begin..(at + 1)];
                return Text.TryUnquote(Text.ToBytes(quoted), out var bytes) && Text.FromBytes(bytes.Span) is { } meant
                    ? (meant, at + 1)
                    : throw new CliException(ExitCodes.Usage, $"{quoted} is not UTF-8. Keys that are not are given by --key-hex.");
            }
        }
        throw NotClosed(line[begin..]);
    }

    private static CliException NotClosed(string quoted) => new(ExitCodes.Usage, $"{quoted} has no quote at its end.");
}
