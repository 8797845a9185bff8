using System.Text;

namespace KvCluster.Cli.Shell;

/// <summary>Reads a line from the terminal, with the keys of bash. One thread; while it reads, Ctrl-C is a key.</summary>
/// <param name="complete">The words that may stand for the last one of a line.</param>
internal sealed class LineEditor(Func<string, Task<IReadOnlyList<string>>> complete)
{
    private const string Prompt = "kv> ";
    private const int CandidatesShown = 100;

    /// <summary>Reads a line; null: there is no more.</summary>
    /// <param name="history">Earlier lines, the newest last.</param>
    public async Task<string?> ReadAsync(IReadOnlyList<string> history)
    {
        var line = new EditedLine(history);
        Console.TreatControlCAsInput = true;
        try
        {
            while (true)
            {
                Show(line);
                var key = Console.ReadKey(intercept: true);
                if (key.Key == ConsoleKey.Enter || (IsControl(key, ConsoleKey.D) && line.Text.Length == 0))
                {
                    Console.WriteLine();
                    return key.Key == ConsoleKey.Enter ? line.Text : null;
                }
                if (IsControl(key, ConsoleKey.C))
                {
                    Console.WriteLine("^C");
                    return "";
                }
                if (key.Key == ConsoleKey.Tab)
                    await CompleteAsync(line);
                else
                    Apply(line, key);
            }
        }
        finally
        {
            Console.TreatControlCAsInput = false;
        }
    }

    private static bool IsControl(ConsoleKeyInfo key, ConsoleKey letter) => key.Key == letter && key.Modifiers.HasFlag(ConsoleModifiers.Control);

    private static void Apply(EditedLine line, ConsoleKeyInfo key)
    {
        if (key.Modifiers.HasFlag(ConsoleModifiers.Control))
            ApplyControl(line, key.Key);
        else if (!ApplyPlain(line, key.Key) && !char.IsControl(key.KeyChar))
            line.Insert(key.KeyChar.ToString());
    }

    private static void ApplyControl(EditedLine line, ConsoleKey key)
    {
        Action? action = key switch
        {
            ConsoleKey.A => line.ToBegin,
            ConsoleKey.B => line.Left,
            ConsoleKey.D => line.Delete,
            ConsoleKey.E => line.ToEnd,
            ConsoleKey.F => line.Right,
            ConsoleKey.H => line.Backspace,
            ConsoleKey.K => line.RemoveToEnd,
            ConsoleKey.L => Console.Clear,
            ConsoleKey.N => line.Newer,
            ConsoleKey.P => line.Older,
            ConsoleKey.U => line.RemoveToBegin,
            ConsoleKey.W => line.RemoveWord,
            ConsoleKey.LeftArrow => line.WordLeft,
            _ => null,
        };
        action?.Invoke();
    }

    private static bool ApplyPlain(EditedLine line, ConsoleKey key)
    {
        Action? action = key switch
        {
            ConsoleKey.LeftArrow => line.Left,
            ConsoleKey.RightArrow => line.Right,
            ConsoleKey.UpArrow => line.Older,
            ConsoleKey.DownArrow => line.Newer,
            ConsoleKey.Home => line.ToBegin,
            ConsoleKey.End => line.ToEnd,
            ConsoleKey.Backspace => line.Backspace,
            ConsoleKey.Delete => line.Delete,
            _ => null,
        };
        action?.Invoke();
        return action is not null;
    }

    private async Task CompleteAsync(EditedLine line)
    {
        var words = await complete(line.Before);
        var common = CommonBeginning(words);
        if (common.Length > line.Before.Length - line.Before.LastIndexOf(' ') - 1)
            line.Complete(common);
        // A key may go on behind a slash, and an option behind its equals sign.
        if (words.Count == 1 && !common.EndsWith('/') && !common.EndsWith('='))
            line.Insert(" ");
        if (words.Count <= 1)
            return;
        Console.WriteLine();
        var shown = string.Join("  ", words.Take(CandidatesShown).Select(static word => OneLine.Of(word)));
        Console.WriteLine(words.Count > CandidatesShown ? shown + "  ..." : shown);
    }

    /// <summary>What all words begin with; empty without words.</summary>
    internal static string CommonBeginning(IReadOnlyList<string> words) => words.Count == 0 ? "" : words.Aggregate(static (common, word) =>
        common[..common.AsSpan().CommonPrefixLength(word)]);

    // A line longer than the terminal is wide is shown in part, so that it stays one line.
    private static void Show(EditedLine line)
    {
        var room = Math.Max(10, Console.WindowWidth - Prompt.Length - 1);
        var begin = Math.Max(0, line.Cursor - room);
        var shown = OneLine.Of(line.Text[begin..Math.Min(line.Text.Length, begin + room)]);
        var text = new StringBuilder("\r").Append(Prompt).Append(shown).Append("\u001b[K\r\u001b[");
        Console.Write(text.Append(Prompt.Length + line.Cursor - begin).Append('C'));
    }
}
