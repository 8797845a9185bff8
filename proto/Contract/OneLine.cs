using System.Buffers;

namespace KvCluster;

/// <summary>
/// Text from elsewhere that people read in a terminal or a log. A line break in it forges a line there, an escape sequence clears the screen or worse, and a
/// character that turns the direction of writing shows text as what it is not. Any thread.
/// </summary>
internal static class OneLine
{
    private const char Replacement = '\uFFFD';

    // The control characters of ASCII and Latin-1, the separators of lines and paragraphs, and what turns the direction of writing.
    private static readonly SearchValues<char> Refused = SearchValues.Create(
    [
        .. Enumerable.Range(0, char.MaxValue + 1).Select(static code => (char)code).Where(
            static character => char.IsControl(character) || character is (>= '\u2028' and <= '\u202E') or (>= '\u2066' and <= '\u2069')),
    ]);

    /// <summary>Whether a text can be shown as it is.</summary>
    public static bool Is(ReadOnlySpan<char> text) => !text.ContainsAny(Refused);

    /// <summary>The text with each character replaced that does more than show itself.</summary>
    /// <param name="text">From a node, a file, or whoever called one.</param>
    /// <param name="keepsLineFeeds">It has lines of its own, as a table has.</param>
    public static string Of(string text, bool keepsLineFeeds = false) => Is(text)
        ? text
        : string.Create(text.Length, (text, keepsLineFeeds), static (shown, from) =>
        {
            for (var index = 0; index < shown.Length; index++)
                shown[index] = Refused.Contains(from.text[index]) && !(from.keepsLineFeeds && from.text[index] == '\n') ? Replacement : from.text[index];
        });
}
