using System.Numerics;
using System.Runtime.InteropServices;

namespace KvCluster.Storage.Encoding;

/// <summary>CRC-32C (Castagnoli), the checksum of everything that the engine writes, with initial and final inversion as in iSCSI.</summary>
internal static class Crc32C
{
    /// <summary>The checksum of some bytes. For "123456789" it is 0xE3069283.</summary>
    public static uint Of(ReadOnlySpan<byte> bytes) => ~Extend(uint.MaxValue, bytes);

    /// <summary>The checksum of two spans as if they were concatenated.</summary>
    public static uint Of(ReadOnlySpan<byte> first, ReadOnlySpan<byte> second) => ~Extend(Extend(uint.MaxValue, first), second);

    /// <summary>Extends a state that is not inverted yet.</summary>
    public static uint Extend(uint state, ReadOnlySpan<byte> bytes)
    {
        var words = MemoryMarshal.Cast<byte, ulong>(bytes);
        foreach (var word in words)
            state = BitOperations.Crc32C(state, word);
        foreach (var value in bytes[(words.Length * sizeof(ulong))..])
            state = BitOperations.Crc32C(state, value);
        return state;
    }
}
