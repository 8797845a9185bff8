using System.Diagnostics.CodeAnalysis;

namespace KvCluster.Client;

/// <summary>
/// The bytes of a key: 1 to 2,048 of them. Keys are ordered by their bytes, as unsigned numbers, and a key comes before those that it is the beginning of. Text
/// is converted to its UTF-8, and <see cref="Of"/> makes keys of several parts, numbers among them. Two keys are equal if their bytes are. Members of sets are
/// given in the same way.
/// </summary>
/// <remarks>
/// The key refers to the memory that it was made of, which must not change while the key is used. Nothing is checked here: a key without bytes, as
/// <c>default</c> is, or with too many is refused by the call that gets it.
/// </remarks>
/// <param name="memory">The bytes. They are not copied.</param>
public readonly struct KvKey(ReadOnlyMemory<byte> memory) : IEquatable<KvKey>, IComparable<KvKey>
{
    /// <summary>The bytes.</summary>
    public ReadOnlyMemory<byte> Memory { get; } = memory;

    /// <summary>The bytes.</summary>
    public ReadOnlySpan<byte> Span => Memory.Span;

    /// <summary>The number of bytes.</summary>
    public int Length => Memory.Length;

    /// <summary>Whether it has no bytes. Where a key may be left out, such as the end of a range, this means that it is.</summary>
    public bool IsEmpty => Memory.IsEmpty;

    /// <summary>
    /// The first key after all keys that begin with this one, as the end of a range; empty if there is none. Of a composite key, those are the key itself and
    /// all keys with more parts.
    /// </summary>
    public KvKey PrefixEnd => KeyBounds.EndOfPrefix(Span);

    /// <summary>
    /// A composite key. Such keys are ordered by their first parts, then by their second ones, and so on: text by its code points, numbers by their value,
    /// times by their moment, and parts of different kinds in the order of <see cref="KvKeyPartKind"/>. As a prefix a composite key means exactly those keys
    /// that have its parts and perhaps more. client/KEYS.md describes the bytes.
    /// </summary>
    /// <param name="parts">Any number of parts. None make an empty key, which as a prefix means all keys.</param>
    /// <exception cref="ArgumentException">The key would be longer than 2,048 bytes, or a text has half of a surrogate pair.</exception>
    public static KvKey Of(params ReadOnlySpan<KvKeyPart> parts) => KeyParts.Encode(parts);

    /// <summary>The parts of a composite key. Whatever the bytes are, nothing is thrown.</summary>
    /// <param name="parts">The parts, of which <see cref="Of"/> makes the same bytes again.</param>
    /// <returns>False if the key is not one that <see cref="Of"/> makes.</returns>
    public bool TryRead([NotNullWhen(true)] out IReadOnlyList<KvKeyPart>? parts) => KeyParts.TryDecode(Span, out parts);

    /// <summary>The bytes as UTF-8 text.</summary>
    /// <exception cref="FormatException">They are not valid UTF-8.</exception>
    public string ToUtf8String() => Utf8Text.Read(Span, "key");

    /// <summary>A copy of the bytes.</summary>
    public byte[] ToArray() => Memory.ToArray();

    /// <summary>For people: the text; as \xNN whatever is not UTF-8, and what a terminal would obey.</summary>
    public override string ToString() => Utf8Text.ForPeople(Span);

    /// <inheritdoc/>
    public int CompareTo(KvKey other) => Span.SequenceCompareTo(other.Span);

    /// <inheritdoc/>
    public bool Equals(KvKey other) => Span.SequenceEqual(other.Span);

    /// <inheritdoc/>
    public override bool Equals([NotNullWhen(true)] object? obj) => obj is KvKey other && Equals(other);

    /// <inheritdoc/>
    public override int GetHashCode()
    {
        var hash = new HashCode();
        hash.AddBytes(Span);
        return hash.ToHashCode();
    }

    /// <summary>Whether two keys have the same bytes.</summary>
    public static bool operator ==(KvKey left, KvKey right) => left.Equals(right);

    /// <summary>Whether two keys have different bytes.</summary>
    public static bool operator !=(KvKey left, KvKey right) => !left.Equals(right);

    /// <summary>The UTF-8 of a text.</summary>
    /// <exception cref="ArgumentException">The text has half of a surrogate pair, which has no UTF-8.</exception>
    public static implicit operator KvKey(string text) => new(Utf8Text.Write(text));

    /// <summary>The bytes, which are not copied; none if it is null.</summary>
    public static implicit operator KvKey(byte[]? bytes) => new(bytes);

    /// <summary>The bytes, which are not copied.</summary>
    public static implicit operator KvKey(ReadOnlyMemory<byte> bytes) => new(bytes);

    /// <summary>The bytes, which are not copied.</summary>
    public static implicit operator ReadOnlyMemory<byte>(KvKey key) => key.Memory;
}
