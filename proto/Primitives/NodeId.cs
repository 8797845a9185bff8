namespace KvCluster;

/// <summary>Names a node of the cluster. Messages, records and files hold the bare number.</summary>
/// <param name="Value">The number; 0 names no node.</param>
internal readonly record struct NodeId(uint Value) : IComparable<NodeId>, ISpanFormattable
{
    /// <summary>No node.</summary>
    public static readonly NodeId None;

    /// <summary>Whether it names no node.</summary>
    public bool IsNone => Value == 0;

    /// <inheritdoc/>
    public int CompareTo(NodeId other) => Value.CompareTo(other.Value);

    /// <inheritdoc/>
    public override string ToString() => ToString(null, null);

    /// <summary>The number in the given format.</summary>
    public string ToString(string? format, IFormatProvider? formatProvider) => Value.ToString(format, formatProvider);

    /// <inheritdoc cref="ToString(string?, IFormatProvider?)"/>
    public bool TryFormat(Span<char> destination, out int charsWritten, ReadOnlySpan<char> format, IFormatProvider? provider) =>
        Value.TryFormat(destination, out charsWritten, format, provider);
}
