using System.Globalization;

namespace KvCluster.Storage.Journal;

/// <summary>File names of segments: the number in 16 hex digits, so that name order is number order.</summary>
internal static class SegmentName
{
    private const string Suffix = ".journal";

    /// <summary>The path of a segment.</summary>
    public static string PathOf(string directory, ulong number) => Path.Combine(directory, number.ToString("x16", CultureInfo.InvariantCulture) + Suffix);

    /// <summary>Reads the number back; false for a file that is no segment.</summary>
    public static bool TryParse(string name, out ulong number)
    {
        number = 0;
        return name.Length == 16 + Suffix.Length && name.EndsWith(Suffix, StringComparison.Ordinal)
            && ulong.TryParse(name.AsSpan(0, 16), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out number);
    }
}
