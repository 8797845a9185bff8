namespace KvCluster.Node.Map;

/// <summary>Key ranges [start, end). An empty end is the end of all keys.</summary>
internal static class Ranges
{
    public static bool Contain(ReadOnlySpan<byte> start, ReadOnlySpan<byte> end, ReadOnlySpan<byte> key) =>
        start.SequenceCompareTo(key) <= 0 && (end.IsEmpty || key.SequenceCompareTo(end) < 0);

    /// <summary>Index of the range with the greatest start at or before a key; -1 if none.</summary>
    /// <param name="ranges">Sorted by start.</param>
    public static int FindAt<T>(ReadOnlySpan<T> ranges, Func<T, ReadOnlyMemory<byte>> startOf, ReadOnlySpan<byte> key)
    {
        int low = 0, high = ranges.Length;
        while (low < high)
        {
            var middle = (low + high) / 2;
            if (startOf(ranges[middle]).Span.SequenceCompareTo(key) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        return low - 1;
    }

    /// <summary>Index of the range with the greatest start before a key. An empty key means the end of all keys.</summary>
    public static int FindBefore<T>(ReadOnlySpan<T> ranges, Func<T, ReadOnlyMemory<byte>> startOf, ReadOnlySpan<byte> key)
    {
        if (key.IsEmpty)
            return ranges.Length - 1;
        var found = FindAt(ranges, startOf, key);
        return found >= 0 && startOf(ranges[found]).Span.SequenceEqual(key) ? found - 1 : found;
    }
}
