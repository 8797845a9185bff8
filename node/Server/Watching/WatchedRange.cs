namespace KvCluster.Node.Watching;

/// <summary>The keys from one on, up to another. Compared by content. Immutable.</summary>
/// <param name="lower">The first key.</param>
/// <param name="upper">The end, which is not in the range; empty: the range has no end.</param>
internal readonly struct WatchedRange(ReadOnlyMemory<byte> lower, ReadOnlyMemory<byte> upper) : IEquatable<WatchedRange>
{
    public ReadOnlyMemory<byte> Lower => lower;

    public ReadOnlyMemory<byte> Upper => upper;

    /// <summary>Whether a key is in the range.</summary>
    public bool Contains(ReadOnlySpan<byte> key) => lower.Span.SequenceCompareTo(key) <= 0 && EndsAfter(upper.Span, key);

    /// <summary>Whether the range has keys in common with another one.</summary>
    /// <param name="start">The other's first key.</param>
    /// <param name="end">The other's end; empty: it has none.</param>
    public bool Meets(ReadOnlySpan<byte> start, ReadOnlySpan<byte> end) => EndsAfter(end, lower.Span) && EndsAfter(upper.Span, start);

    /// <summary>Whether a range with this end, empty if it has none, goes on at a key.</summary>
    public static bool EndsAfter(ReadOnlySpan<byte> end, ReadOnlySpan<byte> key) => end.IsEmpty || end.SequenceCompareTo(key) > 0;

    public bool Equals(WatchedRange other) => lower.Span.SequenceEqual(other.Lower.Span) && upper.Span.SequenceEqual(other.Upper.Span);

    public override bool Equals(object? obj) => obj is WatchedRange other && Equals(other);

    public override int GetHashCode()
    {
        var hash = default(HashCode);
        hash.AddBytes(lower.Span);
        hash.Add(lower.Length);
        hash.AddBytes(upper.Span);
        return hash.ToHashCode();
    }
}
