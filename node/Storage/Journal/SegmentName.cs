using System.Globalization;

namespace KvCluster.Storage.Journal;

/// <summary>File names of segments: the number in 16 hex digits, so that names sort by number.</summary>
internal static class SegmentName
{
    private const string Suffix = ".journal";

    /// <summary>The path of a segment.</summary>
    public static string PathOf(string directory, ulong number) => Path.Combine(directory, number.ToString("x16", CultureInfo.InvariantCulture) + Suffix);

    /// <summary>Parses the number; false if the file is not a segment.</summary>
    public static bool TryParse(string name, out ulong number)
    {
        number = 0;
        return name.Length == 16 + Suffix.Length && name.EndsWith(Suffix, StringComparison.Ordinal)
            && ulong.TryParse(name.AsSpan(0, 16), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out number);
    }
}
