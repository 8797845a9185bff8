using System.Buffers.Binary;

namespace KvCluster.Tests.Fuzzing;

/// <summary>
/// Changes bytes like somebody who knows where numbers and lengths are. Seldom one bit, mostly a whole field, with values at which bounds are often
/// forgotten.
/// </summary>
internal static class Mutation
{
    private const int ChangesMax = 4;
    private const int GrowthMax = 64;

    private static readonly long[] _edges =
        [0, 1, 2, -1, -2, byte.MaxValue,
            short.MaxValue, ushort.MaxValue, int.MaxValue, int.MinValue, uint.MaxValue, long.MaxValue, long.MinValue, 1L << 53, 4_096, 8_191, 8_192, 8_193];

    /// <summary>Returns a changed copy.</summary>
    /// <param name="random">Seeded for the case.</param>
    /// <param name="sound">The original bytes.</param>
    /// <param name="keepsLength">Whether the format has only one length.</param>
    /// <param name="hot">The number of bytes at the front that are hit half of the time, such as headers.</param>
    public static byte[] Of(Random random, ReadOnlySpan<byte> sound, bool keepsLength, int hot)
    {
        var bytes = sound.ToArray();
        for (var changes = random.Next(1, ChangesMax + 1); changes > 0 && bytes.Length > 0; changes--)
        {
            var at = random.Next(random.Next(2) == 0 ? Math.Min(hot, bytes.Length) : bytes.Length);
            switch (random.Next(keepsLength ? 4 : 7))
            {
                case 0: bytes[at] ^= (byte)(1 << random.Next(8)); break;
                case 1: bytes[at] = (byte)random.Next(256); break;
                case 2: WriteEdge(random, bytes, at); break;
                case 3: bytes.AsSpan(random.Next(bytes.Length), 1).CopyTo(bytes.AsSpan(at)); break;
                case 4: bytes = bytes[..at]; break;
                case 5: bytes = [.. bytes, .. RandomBytes(random, random.Next(GrowthMax))]; break;
                default: bytes = Repeat(random, bytes, at); break;
            }
        }

        return bytes;
    }

    public static byte[] RandomBytes(Random random, int count)
    {
        var bytes = new byte[count];
        random.NextBytes(bytes);
        return bytes;
    }

    private static void WriteEdge(Random random, byte[] bytes, int at)
    {
        Span<byte> field = stackalloc byte[sizeof(long)];
        BinaryPrimitives.WriteInt64LittleEndian(field, random.Next(4) == 0 ? bytes.Length + random.Next(-2, 3) : _edges[random.Next(_edges.Length)]);
        var count = Math.Min(1 << random.Next(4), bytes.Length - at);
        field[..count].CopyTo(bytes.AsSpan(at));
    }

    // Repeats a field, in addition to another or in place of it.
    private static byte[] Repeat(Random random, byte[] bytes, int at)
    {
        var part = bytes.AsSpan(at, random.Next(Math.Min(bytes.Length - at, GrowthMax) + 1));
        return [.. bytes.AsSpan(0, at), .. part, .. bytes.AsSpan(at)];
    }
}
