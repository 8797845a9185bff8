namespace KvCluster;

/// <summary>Names a shard of the cluster. Messages, records and files hold the bare number.</summary>
/// <param name="Value">The number, from 0.</param>
internal readonly record struct ShardId(uint Value) : IComparable<ShardId>, ISpanFormattable
{
    /// <inheritdoc/>
    public int CompareTo(ShardId other) => Value.CompareTo(other.Value);

    /// <inheritdoc/>
    public override string ToString() => ToString(null, null);

    /// <summary>The number in the given format.</summary>
    public string ToString(string? format, IFormatProvider? formatProvider) => Value.ToString(format, formatProvider);

    /// <inheritdoc cref="ToString(string?, IFormatProvider?)"/>
    public bool TryFormat(Span<char> destination, out int charsWritten, ReadOnlySpan<char> format, IFormatProvider? provider) =>
        Value.TryFormat(destination, out charsWritten, format, provider);
}
