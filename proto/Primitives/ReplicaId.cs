namespace KvCluster;

/// <summary>Names a replica of a shard. It is never used again for another one. Messages, records and files hold the bare number.</summary>
/// <param name="Value">The number; 0 names no replica.</param>
internal readonly record struct ReplicaId(ulong Value) : IComparable<ReplicaId>, ISpanFormattable
{
    /// <summary>No replica.</summary>
    public static readonly ReplicaId None;

    private const string Shown = "x16";

    /// <summary>Whether it names no replica.</summary>
    public bool IsNone => Value == 0;

    /// <inheritdoc/>
    public int CompareTo(ReplicaId other) => Value.CompareTo(other.Value);

    /// <inheritdoc/>
    public override string ToString() => ToString(null, null);

    /// <summary>
    /// The number in the given format; without one in 16 hexadecimal digits, as everything that people read has it, so that a search finds all of it.
    /// </summary>
    public string ToString(string? format, IFormatProvider? formatProvider) => Value.ToString(string.IsNullOrEmpty(format) ? Shown : format, formatProvider);

    /// <inheritdoc cref="ToString(string?, IFormatProvider?)"/>
    public bool TryFormat(Span<char> destination, out int charsWritten, ReadOnlySpan<char> format, IFormatProvider? provider) =>
        Value.TryFormat(destination, out charsWritten, format.IsEmpty ? Shown : format, provider);
}
