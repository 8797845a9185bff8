namespace KvCluster.Cli;

/// <summary>Finds the name that somebody has probably meant.</summary>
internal static class Spelling
{
    private const int LettersPerMistake = 3;

    /// <summary>
    /// The name that is nearest to what was given, if it begins so or differs by at most a third of the letters; null: none does. Of equally near ones the
    /// first.
    /// </summary>
    public static string? Nearest(string given, IEnumerable<string> known)
    {
        var (name, distance) = known.Select(one => (Name: one, Distance: IsBeginning(given, one) ? 1 : Distance(given, one)))
            .DefaultIfEmpty((Name: "", Distance: int.MaxValue)).MinBy(static one => one.Distance);
        return distance <= Math.Max(1, given.Length / LettersPerMistake) ? name : null;
    }

    /// <summary>A question with the nearest name and a space in front; empty if none is near.</summary>
    public static string Question(string given, IEnumerable<string> known) => Nearest(given, known) is { } name ? $" Did you mean {name}?" : "";

    // One letter is the beginning of too many names.
    private static bool IsBeginning(string given, string name) => given.Length > 1 && name.StartsWith(given, StringComparison.Ordinal);

    /// <summary>
    /// How many letters have to be added, left out, replaced or swapped with their neighbour ("optimal string alignment" distance of Damerau and Levenshtein).
    /// </summary>
    private static int Distance(string from, string to)
    {
        var rows = new int[from.Length + 1, to.Length + 1];
        for (var row = 0; row <= from.Length; row++)
            rows[row, 0] = row;
        for (var column = 0; column <= to.Length; column++)
            rows[0, column] = column;
        for (var row = 1; row <= from.Length; row++)
        {
            for (var column = 1; column <= to.Length; column++)
            {
                var replaced = rows[row - 1, column - 1] + (from[row - 1] == to[column - 1] ? 0 : 1);
                var least = Math.Min(replaced, Math.Min(rows[row - 1, column], rows[row, column - 1]) + 1);
                var isSwapped = row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1];
                rows[row, column] = isSwapped ? Math.Min(least, rows[row - 2, column - 2] + 1) : least;
            }
        }
        return rows[from.Length, to.Length];
    }
}
