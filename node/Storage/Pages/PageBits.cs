using System.Numerics;

namespace KvCluster.Storage.Pages;

/// <summary>A bitmap with one bit per page of the file. Pure; the owner of the words decides who may change them.</summary>
internal static class PageBits
{
    /// <summary>Whether a page's bit is set.</summary>
    public static bool IsSet(ulong[] bits, long page) => (bits[page / 64] & (1ul << (int)(page % 64))) != 0;

    /// <summary>Sets a page's bit.</summary>
    public static void Set(ulong[] bits, long page) => bits[page / 64] |= 1ul << (int)(page % 64);

    /// <summary>Clears a page's bit.</summary>
    public static void Clear(ulong[] bits, long page) => bits[page / 64] &= ~(1ul << (int)(page % 64));

    /// <summary>The set bits as runs of pages, in the order of the file.</summary>
    public static List<PageRun> RunsOf(ulong[] bits)
    {
        var runs = new List<PageRun>();
        long first = 0, count = 0;
        for (var word = 0; word < bits.Length; word++)
        {
            if (bits[word] == 0)
            {
                // Vectorized skip of empty words.
                var skipped = bits.AsSpan(word).IndexOfAnyExcept(0ul);
                if (skipped < 0)
                    break;
                word += skipped;
            }
            for (var rest = bits[word]; rest != 0;)
            {
                var from = BitOperations.TrailingZeroCount(rest);
                var length = BitOperations.TrailingZeroCount(~(rest >> from));
                var page = ((long)word * 64) + from;
                if (count > 0 && first + count == page)
                    count += length;
                else
                {
                    if (count > 0)
                        runs.Add(new PageRun(first, count));
                    (first, count) = (page, length);
                }
                rest &= from + length >= 64 ? 0 : ulong.MaxValue << (from + length);
            }
        }
        if (count > 0)
            runs.Add(new PageRun(first, count));
        return runs;
    }
}
