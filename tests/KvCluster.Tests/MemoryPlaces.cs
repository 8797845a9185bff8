using System.Globalization;
using System.Runtime.InteropServices;
using Microsoft.Win32.SafeHandles;

namespace KvCluster.Tests;

/// <summary>
/// Counts the places of this process's memory that have some bytes. It reads everything that can be written to: objects, pools, native memory and stacks. So a
/// copy is counted whoever has made it and by whatever means, and there is nothing in the product that could forget to count. What is overwritten or given back
/// to the system is not there any more, so it is to be looked for soon. A collection that moves objects leaves what they were; the caller looks again then.
/// </summary>
internal sealed class MemoryPlaces
{
    /// <summary>The bytes that are looked for: the middle of a value, so that whoever writes a little into its memory does not hide it.</summary>
    private const int SoughtBytes = 64;

    /// <summary>What is read at once; a value has at most as much.</summary>
    private const int PieceBytes = 1 << 20;

    // What is looked for, and the piece of memory that was read. Neither is counted, so nothing of them may be anywhere else.
    private readonly byte[] _own = GC.AllocateUninitializedArray<byte>(SoughtBytes + PieceBytes + SoughtBytes, pinned: true);

    /// <summary>Makes a value of bytes that are nowhere else.</summary>
    public static void Fill(Span<byte> value, int seed) => new Random(seed).NextBytes(value);

    /// <summary>In how many places the value of a seed is.</summary>
    public int Count(int seed, int valueBytes)
    {
        var (sought, piece) = (_own.AsMemory(0, SoughtBytes), _own.AsMemory(SoughtBytes));
        Fill(piece.Span[..valueBytes], seed);
        piece.Span.Slice((valueBytes - SoughtBytes) / 2, SoughtBytes).CopyTo(sought.Span);
        var begin = (long)Marshal.UnsafeAddrOfPinnedArrayElement(_own, 0);
        var places = 0;
        using var memory = File.OpenHandle("/proc/self/mem", FileMode.Open, FileAccess.Read, FileShare.ReadWrite);
        foreach (var (first, end) in Ranges())
        {
            for (var at = first; at < end; at += PieceBytes)
            {
                // What begins in this piece may go on in the next one.
                var read = piece.Span[..Read(memory, piece.Span[..(int)Math.Min(PieceBytes + SoughtBytes - 1, end - at)], at)];
                for (int found, from = 0; (found = read[from..].IndexOf(sought.Span)) >= 0 && from + found < PieceBytes; from += found + 1)
                    places += at + from + found >= begin && at + from + found < begin + _own.Length ? 0 : 1;
            }
        }
        return places;
    }

    private static int Read(SafeFileHandle memory, Span<byte> piece, long at)
    {
        try
        {
            return RandomAccess.Read(memory, piece, at);
        }
        catch (IOException)
        {
            // It was given back to the system since.
            return 0;
        }
    }

    /// <summary>The ranges that can be read and written.</summary>
    private static List<(long First, long End)> Ranges()
    {
        var ranges = new List<(long, long)>();
        foreach (var line in File.ReadAllLines("/proc/self/maps"))
        {
            var (dash, space) = (line.IndexOf('-', StringComparison.Ordinal), line.IndexOf(' ', StringComparison.Ordinal));
            if (line.AsSpan(space + 1).StartsWith("rw", StringComparison.Ordinal))
                ranges.Add((Address(line.AsSpan(0, dash)), Address(line.AsSpan(dash + 1, space - dash - 1))));
        }
        return ranges;
    }

    private static long Address(ReadOnlySpan<char> text) => long.Parse(text, NumberStyles.HexNumber, CultureInfo.InvariantCulture);
}
