using System.Globalization;
using System.Text;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>Keys that end with a number of 20 digits. Pure.</summary>
internal static class NumberedKey
{
    public static KvKey Of(KvKey prefix, ulong number) =>
        (byte[])[.. prefix.Span, .. Encoding.ASCII.GetBytes(number.ToString("D20", CultureInfo.InvariantCulture))];
}
