using System.Globalization;
using System.Text;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>Keys as people read them: printable ASCII as it is, in quotes, other bytes as \xNN.</summary>
internal static class KeyText
{
    /// <summary>A key.</summary>
    public static string Of(ReadOnlySpan<byte> key)
    {
        var text = new StringBuilder("\"");
        foreach (var value in key)
        {
            if (value is >= 0x20 and < 0x7F and not ((byte)'"' or (byte)'\\'))
                text.Append((char)value);
            else
                text.Append(CultureInfo.InvariantCulture, $"\\x{value:x2}");
        }
        return text.Append('"').ToString();
    }

    /// <summary>A range of keys.</summary>
    public static string Of(KeyRange keys) => keys switch
    {
        (null, null) => "all keys",
        ({ } from, { } before) when before.Length == from.Length + 1 && before[^1] == 0 && before.AsSpan().StartsWith(from) =>
            $"the value of the key {Of(from)}",
        ({ } from, null) => $"the keys from {Of(from)} on",
        (null, { } before) => $"the keys before {Of(before)}",
        var (from, before) => $"the keys from {Of(from)} to before {Of(before)}",
    };
}

/// <summary>Names of trees, as in FORMAT.md.</summary>
internal static class TreeText
{
    /// <summary>The name of a tree.</summary>
    public static string Of(TreeId tree) => Enum.IsDefined(tree) ? tree.ToString().ToLowerInvariant() : ((int)tree).ToString(CultureInfo.InvariantCulture);
}
