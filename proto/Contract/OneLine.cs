using System.Buffers;

namespace KvCluster;

/// <summary>
/// Makes text from elsewhere safe to show in a terminal or a log. A line break in it would forge a line there, an escape sequence could clear the screen or
/// do worse, and a character that changes the writing direction would make text look like something else. Any thread.
/// </summary>
internal static class OneLine
{
    private const char Replacement = '\uFFFD';

    // The control characters of ASCII and Latin-1, the line and paragraph separators, and the characters that change the writing direction.
    private static readonly SearchValues<char> Refused = SearchValues.Create(
    [
        .. Enumerable.Range(0, char.MaxValue + 1).Select(static code => (char)code).Where(
            static character => char.IsControl(character) || character is (>= '\u2028' and <= '\u202E') or (>= '\u2066' and <= '\u2069')),
    ]);

    /// <summary>Whether a text can be shown as it is.</summary>
    public static bool Is(ReadOnlySpan<char> text) => !text.ContainsAny(Refused);

    /// <summary>Returns the text with each unsafe character replaced.</summary>
    /// <param name="text">From a node, a file, or the caller of one.</param>
    /// <param name="keepsLineFeeds">Keep line feeds, for text with several lines such as a table.</param>
    public static string Of(string text, bool keepsLineFeeds = false) => Is(text)
        ? text
        : string.Create(text.Length, (text, keepsLineFeeds), static (shown, from) =>
        {
            for (var index = 0; index < shown.Length; index++)
                shown[index] = Refused.Contains(from.text[index]) && !(from.keepsLineFeeds && from.text[index] == '\n') ? Replacement : from.text[index];
        });
}
