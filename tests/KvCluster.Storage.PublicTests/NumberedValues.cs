using System.Buffers.Binary;
using System.Globalization;
using System.Text;

namespace KvCluster.PublicTests;

/// <summary>
/// Numbered keys, and a value for each version of a key, from 0 bytes to the longest that a store takes. Keys and versions alone say what a value is, so any
/// number of values can be compared without keeping them. Any thread.
/// </summary>
internal static class NumberedValues
{
    public const int KeyBytes = 16;

    /// <summary>The longest value.</summary>
    public const int BytesMax = 8 << 20;

    private const int LargeBytesMin = 1 << 20;
    private const int MediumBytesMin = 10_000;
    private const int MediumBytesMax = 100_000;
    private const int SmallBytesMax = 2_000;

    /// <summary>One of so many keys has values of that kind.</summary>
    private const int LargeOneOf = 10_000;
    private const int MediumOneOf = 1_000;
    private const int EmptyOneOf = 100;

    private static readonly byte[] Noise = MakeNoise();

    /// <summary>The key of a number.</summary>
    public static byte[] Key(int number) => Encoding.ASCII.GetBytes(string.Create(CultureInfo.InvariantCulture, $"key-{number:D12}"));

    /// <summary>The length of a key's value. The kind depends on the key alone.</summary>
    public static int Length(int number, int version)
    {
        var mixed = Mix(number, version);
        return (number % LargeOneOf, number % MediumOneOf, number % EmptyOneOf) switch
        {
            (1, _, _) => LargeBytesMin + (int)(mixed % (BytesMax - LargeBytesMin + 1)),
            (_, 2, _) => MediumBytesMin + (int)(mixed % (MediumBytesMax - MediumBytesMin)),
            (_, _, 3) => 0,
            _ => (int)(mixed % SmallBytesMax),
        };
    }

    /// <summary>Writes the value, and returns its length.</summary>
    public static int Fill(Span<byte> value, int number, int version)
    {
        value = value[..Length(number, version)];
        var mixed = Mix(number, version);
        var offset = OffsetOf(mixed);
        for (var rest = value; rest.Length > 0; offset = 0)
        {
            var part = Noise.AsSpan(offset, Math.Min(rest.Length, Noise.Length - offset));
            part.CopyTo(rest);
            rest = rest[part.Length..];
        }
        if (value.Length >= sizeof(ulong))
            BinaryPrimitives.WriteUInt64LittleEndian(value, mixed);
        return value.Length;
    }

    /// <summary>Whether this is the value.</summary>
    public static bool IsValue(ReadOnlySpan<byte> value, int number, int version)
    {
        if (value.Length != Length(number, version))
            return false;
        var mixed = Mix(number, version);
        var done = 0;
        if (value.Length >= sizeof(ulong))
        {
            if (BinaryPrimitives.ReadUInt64LittleEndian(value) != mixed)
                return false;
            done = sizeof(ulong);
        }
        for (var offset = OffsetOf(mixed) + done; done < value.Length; offset = 0)
        {
            var part = Noise.AsSpan(offset, Math.Min(value.Length - done, Noise.Length - offset));
            if (!value.Slice(done, part.Length).SequenceEqual(part))
                return false;
            done += part.Length;
        }
        return true;
    }

    private static int OffsetOf(ulong mixed) => (int)(mixed >> 32) & ((Noise.Length / 2) - 1);

    // splitmix64
    private static ulong Mix(int number, int version)
    {
        var mixed = (((ulong)(uint)number << 8) + (uint)version) * 0x9E37_79B9_7F4A_7C15;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB;
        return mixed ^ (mixed >> 31);
    }

    private static byte[] MakeNoise()
    {
        var noise = new byte[1 << 20];
        new Random(1).NextBytes(noise);
        return noise;
    }
}
