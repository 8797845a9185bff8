using System.Globalization;
using System.Text;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Keys of 16 bytes in order of their numbers, and values: a data set of any size that nobody has to keep.</summary>
internal static class ManyKeys
{
    private const int ValueCount = 64;

    public static ReadOnlyMemory<byte> Key(int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"key-{number:D12}"));

    /// <summary>A random order of the keys for every caller.</summary>
    /// <param name="caller">The caller.</param>
    /// <param name="number">The operation of that caller.</param>
    /// <param name="keys">The number of keys.</param>
    public static int Spread(int caller, int number, int keys) =>
        (int)((((ulong)(uint)number * 0x9E37_79B9_7F4A_7C15) ^ ((ulong)(uint)caller * 0xBF58_476D_1CE4_E5B9)) % (ulong)keys);

    /// <summary>Random values of that many bytes; their number is a power of two.</summary>
    public static byte[][] Values(int bytes)
    {
        var random = new Random(17);
        var values = new byte[ValueCount][];
        foreach (ref var value in values.AsSpan())
            random.NextBytes(value = new byte[bytes]);
        return values;
    }
}
