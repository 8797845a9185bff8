namespace KvCluster;

/// <summary>
/// The range [<see cref="Lower"/>, <see cref="Upper"/>) of keys that a request names by start, end and prefix (kv.proto). For nodes, routers and clients.
/// </summary>
/// <param name="Lower">The first key; empty: that of all keys.</param>
/// <param name="Upper">The end, exclusive; empty: the end of all keys.</param>
internal readonly record struct KeyBounds(ReadOnlyMemory<byte> Lower, ReadOnlyMemory<byte> Upper)
{
    /// <summary>The range of a request.</summary>
    /// <param name="start">First key, inclusive.</param>
    /// <param name="end">End, exclusive; empty: none.</param>
    /// <param name="prefix">Only keys with this prefix.</param>
    public static KeyBounds Of(ReadOnlyMemory<byte> start, ReadOnlyMemory<byte> end, ReadOnlyMemory<byte> prefix) => prefix.IsEmpty
        ? new KeyBounds(start, end)
        : new KeyBounds(Greater(start, prefix), LesserEnd(end, EndOfPrefix(prefix.Span)));

    /// <summary>Whether no key can be in it.</summary>
    public bool IsEmpty => !Upper.IsEmpty && Lower.Span.SequenceCompareTo(Upper.Span) >= 0;

    /// <summary>Whether it goes on beyond a bound between two shards: after it or, if reverse, before it. Empty: there is no shard beyond.</summary>
    public bool GoesOnBeyond(ReadOnlySpan<byte> bound, bool reverse)
    {
        if (bound.IsEmpty)
            return false;
        return reverse
            ? bound.SequenceCompareTo(Lower.Span) > 0
            : Upper.IsEmpty || bound.SequenceCompareTo(Upper.Span) < 0;
    }

    /// <summary>The part after a key; if reverse, the part before it.</summary>
    public KeyBounds Behind(ReadOnlyMemory<byte> key, bool reverse) => From(reverse ? key : (byte[])[.. key.Span, 0], reverse);

    /// <summary>The part from a key on; if reverse, the part before it.</summary>
    public KeyBounds From(ReadOnlyMemory<byte> key, bool reverse) => reverse
        ? this with { Upper = LesserEnd(Upper, key) }
        : this with { Lower = Greater(Lower, key) };

    /// <summary>
    /// The greatest key less than another one; with an empty one, the greatest of all. There is one because keys have a maximum length. Empty: there is no
    /// lesser key.
    /// </summary>
    public static byte[] Before(ReadOnlySpan<byte> key)
    {
        // Below a bound that is longer than keys, its beginning is the greatest one.
        if (key.Length > KvLimits.KeyBytesMax)
            return key[..KvLimits.KeyBytesMax].ToArray();
        if (key is [.. var shorter, 0])
            return shorter.ToArray();
        var before = new byte[KvLimits.KeyBytesMax];
        Array.Fill(before, byte.MaxValue);
        if (key.IsEmpty)
            return before;
        key.CopyTo(before);
        before[key.Length - 1]--;
        return before;
    }

    /// <summary>The first key after all keys with a prefix: the last byte that can be incremented is. Empty if there is no such key.</summary>
    public static byte[] EndOfPrefix(ReadOnlySpan<byte> prefix)
    {
        while (prefix.Length > 0 && prefix[^1] == byte.MaxValue)
            prefix = prefix[..^1];
        var end = prefix.ToArray();
        if (end.Length > 0)
            end[^1]++;
        return end;
    }

    /// <summary>
    /// A range as one whose bounds are no longer than keys, as records have them. Beyond the longest key there is none with the same beginning, so a bound
    /// that is longer is as good as the end of all keys that begin with its first <see cref="KvLimits.KeyBytesMax"/> bytes. If there is no such end, no key is
    /// in a range that begins there.
    /// </summary>
    /// <param name="from">The first key.</param>
    /// <param name="to">The end, exclusive; empty: the end of all keys, or of the shard.</param>
    public static (byte[] From, byte[] To) Shortened(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        var end = to.Length > KvLimits.KeyBytesMax ? EndOfPrefix(to[..KvLimits.KeyBytesMax]) : to.ToArray();
        if (from.Length <= KvLimits.KeyBytesMax)
            return (from.ToArray(), end);
        var last = from[..KvLimits.KeyBytesMax];
        var first = EndOfPrefix(last);
        return first.Length > 0 ? (first, end) : (last.ToArray(), last.ToArray());
    }

    private static ReadOnlyMemory<byte> Greater(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.Span.SequenceCompareTo(right.Span) >= 0 ? left : right;

    // Empty is the greatest end.
    private static ReadOnlyMemory<byte> LesserEnd(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        right.IsEmpty || (!left.IsEmpty && left.Span.SequenceCompareTo(right.Span) <= 0) ? left : right;
}
