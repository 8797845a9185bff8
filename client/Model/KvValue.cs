using System.Buffers.Text;
using System.Diagnostics.CodeAnalysis;
using System.Globalization;

namespace KvCluster.Client;

/// <summary>
/// The bytes of a value: up to 8 MiB. Text is converted to its UTF-8. A number becomes a value by <see cref="FromInt64"/> only, so that all are stored in the
/// form that increments read. Two values are equal if their bytes are.
/// </summary>
/// <remarks>The value refers to the memory that it was made of, which must not change while the value is used.</remarks>
/// <param name="memory">The bytes. They are not copied.</param>
public readonly struct KvValue(ReadOnlyMemory<byte> memory) : IEquatable<KvValue>
{
    // A sign and 19 digits.
    private const int NumberBytesMax = 20;

    /// <summary>The bytes.</summary>
    public ReadOnlyMemory<byte> Memory { get; } = memory;

    /// <summary>The bytes.</summary>
    public ReadOnlySpan<byte> Span => Memory.Span;

    /// <summary>The number of bytes.</summary>
    public int Length => Memory.Length;

    /// <summary>Whether it has no bytes. A key may have an empty value.</summary>
    public bool IsEmpty => Memory.IsEmpty;

    /// <summary>A number, in the decimal text that increments read and write.</summary>
    public static KvValue FromInt64(long number) => number.ToString(CultureInfo.InvariantCulture);

    /// <summary>The number whose decimal text this is: digits, perhaps behind a minus sign, as increments take it.</summary>
    /// <exception cref="FormatException">It is not the decimal text of a signed 64-bit number.</exception>
    public long ToInt64()
    {
        var text = Span;
        return text.Length is > 0 and <= NumberBytesMax && text[0] != '+' && Utf8Parser.TryParse(text, out long number, out var read) && read == text.Length
            ? number
            : throw new FormatException(
                $"The value, of {text.Length:N0} bytes, is not the decimal text of a signed 64-bit number. Read it with {nameof(Span)}, and store numbers with "
                + $"{nameof(KvValue)}.{nameof(FromInt64)}.");
    }

    /// <summary>The bytes as UTF-8 text.</summary>
    /// <exception cref="FormatException">They are not valid UTF-8.</exception>
    public string ToUtf8String() => Utf8Text.Read(Span, "value");

    /// <summary>A copy of the bytes.</summary>
    public byte[] ToArray() => Memory.ToArray();

    /// <summary>For people: the text; as \xNN whatever is not UTF-8, and what a terminal would obey. Programs use <see cref="ToUtf8String"/>.</summary>
    public override string ToString() => Utf8Text.ForPeople(Span);

    /// <inheritdoc/>
    public bool Equals(KvValue other) => Span.SequenceEqual(other.Span);

    /// <inheritdoc/>
    public override bool Equals([NotNullWhen(true)] object? obj) => obj is KvValue other && Equals(other);

    /// <inheritdoc/>
    public override int GetHashCode()
    {
        var hash = new HashCode();
        hash.AddBytes(Span);
        return hash.ToHashCode();
    }

    /// <summary>Whether two values have the same bytes.</summary>
    public static bool operator ==(KvValue left, KvValue right) => left.Equals(right);

    /// <summary>Whether two values have different bytes.</summary>
    public static bool operator !=(KvValue left, KvValue right) => !left.Equals(right);

    /// <summary>The UTF-8 of a text.</summary>
    /// <exception cref="ArgumentException">The text has half of a surrogate pair, which has no UTF-8.</exception>
    public static implicit operator KvValue(string text) => new(Utf8Text.Write(text));

    /// <summary>The bytes, which are not copied; none if it is null.</summary>
    public static implicit operator KvValue(byte[]? bytes) => new(bytes);

    /// <summary>The bytes, which are not copied.</summary>
    public static implicit operator KvValue(ReadOnlyMemory<byte> bytes) => new(bytes);

    /// <summary>The bytes, which are not copied.</summary>
    public static implicit operator ReadOnlyMemory<byte>(KvValue value) => value.Memory;
}
