namespace KvCluster.Node.Api;

/// <summary>The bounds of a range that a request names by start, end and prefix.</summary>
internal readonly ref struct KeyBounds(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
{
    /// <summary>The first key; empty for the first one there is.</summary>
    public ReadOnlySpan<byte> From { get; } = from;

    /// <summary>The end, exclusive; empty for the end of all keys.</summary>
    public ReadOnlySpan<byte> To { get; } = to;

    /// <summary>Computes the bounds. Null on success.</summary>
    public static ApiError? TryRead(ReadOnlySpan<byte> start, ReadOnlySpan<byte> end, ReadOnlySpan<byte> prefix, out KeyBounds bounds)
    {
        bounds = default;
        if (Math.Max(Math.Max(start.Length, end.Length), prefix.Length) > KvLimits.KeyBytesMax)
            return ApiErrors.KeyTooLong;
        var from = start.SequenceCompareTo(prefix) >= 0 ? start : prefix;
        var endOfPrefix = EndOf(prefix);
        bounds = new KeyBounds(from, end.IsEmpty || (!endOfPrefix.IsEmpty && end.SequenceCompareTo(endOfPrefix) > 0) ? endOfPrefix : end);
        return null;
    }

    /// <summary>The least key behind all with a prefix; empty if there is none.</summary>
    private static ReadOnlySpan<byte> EndOf(ReadOnlySpan<byte> prefix)
    {
        var last = prefix.LastIndexOfAnyExcept((byte)0xFF);
        if (last < 0)
            return default;
        var end = prefix[..(last + 1)].ToArray();
        end[last]++;
        return end;
    }
}
