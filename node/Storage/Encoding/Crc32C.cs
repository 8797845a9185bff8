using System.Numerics;
using System.Runtime.InteropServices;

namespace KvCluster.Storage.Encoding;

/// <summary>CRC-32C (Castagnoli), the checksum of everything that the engine writes, with initial and final inversion as in iSCSI.</summary>
/// <remarks>
/// The processor's instruction takes three cycles but can begin every cycle, so long inputs are computed as three streams at once. Their states are joined
/// by a table, as in crc32c.c by Mark Adler: the state behind n bytes of zeros is a linear function of the state before them.
/// </remarks>
internal static class Crc32C
{
    /// <summary>Bytes of one of the three streams. Three of them are almost a page.</summary>
    private const int StreamBytes = 2720;

    /// <summary>For shorter inputs and the rest of long ones.</summary>
    private const int ShortStreamBytes = 336;

    private const int StreamWords = StreamBytes / sizeof(ulong);
    private const int ShortStreamWords = ShortStreamBytes / sizeof(ulong);

    private static readonly uint[] BehindStream = BehindZeros(StreamBytes);
    private static readonly uint[] BehindShortStream = BehindZeros(ShortStreamBytes);

    /// <summary>The checksum of some bytes. For "123456789" it is 0xE3069283.</summary>
    public static uint Of(ReadOnlySpan<byte> bytes) => ~Extend(uint.MaxValue, bytes);

    /// <summary>The checksum of two spans as if they were concatenated.</summary>
    public static uint Of(ReadOnlySpan<byte> first, ReadOnlySpan<byte> second) => ~Extend(Extend(uint.MaxValue, first), second);

    /// <summary>Extends a state that is not inverted yet.</summary>
    public static uint Extend(uint state, ReadOnlySpan<byte> bytes)
    {
        var words = MemoryMarshal.Cast<byte, ulong>(bytes);
        var end = bytes[(words.Length * sizeof(ulong))..];
        for (; words.Length >= 3 * StreamWords; words = words[(3 * StreamWords)..])
            state = ExtendThree(state, words[..StreamWords], words[StreamWords..], words[(2 * StreamWords)..], BehindStream);
        for (; words.Length >= 3 * ShortStreamWords; words = words[(3 * ShortStreamWords)..])
            state = ExtendThree(state, words[..ShortStreamWords], words[ShortStreamWords..], words[(2 * ShortStreamWords)..], BehindShortStream);
        foreach (var word in words)
            state = BitOperations.Crc32C(state, word);
        foreach (var value in end)
            state = BitOperations.Crc32C(state, value);
        return state;
    }

    /// <summary>Three streams, one behind the other, each as long as the first.</summary>
    private static uint ExtendThree(uint state, ReadOnlySpan<ulong> first, ReadOnlySpan<ulong> second, ReadOnlySpan<ulong> third, uint[] behind)
    {
        var (secondState, thirdState) = (0u, 0u);
        second = second[..first.Length];
        third = third[..first.Length];
        for (var i = 0; i < first.Length; i++)
        {
            state = BitOperations.Crc32C(state, first[i]);
            secondState = BitOperations.Crc32C(secondState, second[i]);
            thirdState = BitOperations.Crc32C(thirdState, third[i]);
        }
        state = Behind(behind, state) ^ secondState;
        return Behind(behind, state) ^ thirdState;
    }

    private static uint Behind(uint[] table, uint state) =>
        table[state & 0xFF] ^ table[256 + ((state >> 8) & 0xFF)] ^ table[512 + ((state >> 16) & 0xFF)] ^ table[768 + (state >> 24)];

    /// <summary>The states behind some bytes of zeros, for each value of each byte of the state before them.</summary>
    private static uint[] BehindZeros(int bytes)
    {
        Span<uint> bits = stackalloc uint[32];
        for (var bit = 0; bit < bits.Length; bit++)
        {
            var state = 1u << bit;
            for (var word = 0; word < bytes / sizeof(ulong); word++)
                state = BitOperations.Crc32C(state, 0ul);
            bits[bit] = state;
        }
        var table = new uint[4 * 256];
        for (var index = 0; index < table.Length; index++)
        {
            for (var bit = 0; bit < 8; bit++)
                table[index] ^= (index & (1 << bit)) != 0 ? bits[(index / 256 * 8) + bit] : 0;
        }
        return table;
    }
}
