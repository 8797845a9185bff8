using System.Buffers.Binary;
using System.Diagnostics.CodeAnalysis;
using System.Globalization;

namespace KvCluster.Client;

/// <summary>
/// A part of a composite key (<see cref="KvKey.Of"/>): text, bytes, a signed or unsigned number of 64 bits, a <see cref="Guid"/>, a bool, a moment, or null.
/// Each of these is converted to a part where one is expected. A part that is read from a key is converted back by the method of its kind.
/// </summary>
public readonly struct KvKeyPart : IEquatable<KvKeyPart>
{
    // The number, the ticks of the moment, 1 for true, or the bytes of the Guid in the order of its text.
    private readonly Int128 _number;
    private readonly ReadOnlyMemory<byte> _bytes;
    private readonly string? _text;

    private KvKeyPart(KvKeyPartKind kind, Int128 number = default, ReadOnlyMemory<byte> bytes = default, string? text = null) =>
        (Kind, _number, _bytes, _text) = (kind, number, bytes, text);

    /// <summary>The part without a value, which comes before all others. A null string and a null array are this, too.</summary>
    public static KvKeyPart Null => default;

    /// <summary>What it is.</summary>
    public KvKeyPartKind Kind { get; }

    /// <summary>Of <see cref="KvKeyPartKind.Bool"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    public bool ToBool() => NumberOf(KvKeyPartKind.Bool) != 0;

    /// <summary>Of <see cref="KvKeyPartKind.Number"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    /// <exception cref="OverflowException">The number does not fit.</exception>
    public int ToInt32() => checked((int)NumberOf(KvKeyPartKind.Number));

    /// <summary>Of <see cref="KvKeyPartKind.Number"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    /// <exception cref="OverflowException">The number does not fit.</exception>
    public long ToInt64() => checked((long)NumberOf(KvKeyPartKind.Number));

    /// <summary>Of <see cref="KvKeyPartKind.Number"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    /// <exception cref="OverflowException">The number is negative.</exception>
    public ulong ToUInt64() => checked((ulong)NumberOf(KvKeyPartKind.Number));

    /// <summary>Of <see cref="KvKeyPartKind.Moment"/>. Its offset is zero, because a key has the moment only.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    public DateTimeOffset ToDateTimeOffset() => new((long)NumberOf(KvKeyPartKind.Moment), TimeSpan.Zero);

    /// <summary>Of <see cref="KvKeyPartKind.Guid"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    public Guid ToGuid()
    {
        Span<byte> bytes = stackalloc byte[KeyParts.GuidBytes];
        BinaryPrimitives.WriteInt128BigEndian(bytes, NumberOf(KvKeyPartKind.Guid));
        return new Guid(bytes, bigEndian: true);
    }

    /// <summary>Of <see cref="KvKeyPartKind.Bytes"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    public ReadOnlyMemory<byte> ToBytes() => Kind == KvKeyPartKind.Bytes ? _bytes : throw IsNot(KvKeyPartKind.Bytes);

    /// <summary>Of <see cref="KvKeyPartKind.Text"/>.</summary>
    /// <exception cref="InvalidOperationException">The part is of another kind.</exception>
    public string ToText() => Kind == KvKeyPartKind.Text ? _text! : throw IsNot(KvKeyPartKind.Text);

    /// <summary>For people: the text, the bytes in hexadecimal digits, or the value in the invariant culture.</summary>
    public override string ToString() => Kind switch
    {
        KvKeyPartKind.Bool => ToBool() ? "true" : "false",
        KvKeyPartKind.Number => _number.ToString(CultureInfo.InvariantCulture),
        KvKeyPartKind.Moment => ToDateTimeOffset().ToString("O", CultureInfo.InvariantCulture),
        KvKeyPartKind.Guid => ToGuid().ToString(),
        KvKeyPartKind.Bytes => "0x" + Convert.ToHexString(_bytes.Span),
        KvKeyPartKind.Text => _text!,
        _ => "null",
    };

    /// <inheritdoc/>
    public bool Equals(KvKeyPart other) => Kind == other.Kind
        && _number == other._number && _bytes.Span.SequenceEqual(other._bytes.Span) && string.Equals(_text, other._text, StringComparison.Ordinal);

    /// <inheritdoc/>
    public override bool Equals([NotNullWhen(true)] object? obj) => obj is KvKeyPart other && Equals(other);

    /// <inheritdoc/>
    public override int GetHashCode()
    {
        var hash = new HashCode();
        hash.Add(Kind);
        hash.Add(_number);
        hash.AddBytes(_bytes.Span);
        hash.Add(_text, StringComparer.Ordinal);
        return hash.ToHashCode();
    }

    /// <summary>Whether two parts are of the same kind and have the same value.</summary>
    public static bool operator ==(KvKeyPart left, KvKeyPart right) => left.Equals(right);

    /// <summary>Whether two parts are of different kinds or have different values.</summary>
    public static bool operator !=(KvKeyPart left, KvKeyPart right) => !left.Equals(right);

    /// <summary>A text; null is <see cref="Null"/>.</summary>
    public static implicit operator KvKeyPart(string? text) => text is null ? default : new KvKeyPart(KvKeyPartKind.Text, text: text);

    /// <summary>Bytes, which are copied when a key is made; null is <see cref="Null"/>.</summary>
    public static implicit operator KvKeyPart(byte[]? bytes) => bytes is null ? default : new KvKeyPart(KvKeyPartKind.Bytes, bytes: bytes);

    /// <summary>Bytes, which are copied when a key is made.</summary>
    public static implicit operator KvKeyPart(ReadOnlyMemory<byte> bytes) => new(KvKeyPartKind.Bytes, bytes: bytes);

    /// <summary>A number. Its type does not matter: the same number of another type is the same part.</summary>
    public static implicit operator KvKeyPart(int number) => new(KvKeyPartKind.Number, number);

    /// <summary>A number. Its type does not matter: the same number of another type is the same part.</summary>
    public static implicit operator KvKeyPart(uint number) => new(KvKeyPartKind.Number, number);

    /// <summary>A number. Its type does not matter: the same number of another type is the same part.</summary>
    public static implicit operator KvKeyPart(long number) => new(KvKeyPartKind.Number, number);

    /// <summary>A number. Its type does not matter: the same number of another type is the same part.</summary>
    public static implicit operator KvKeyPart(ulong number) => new(KvKeyPartKind.Number, number);

    /// <summary>A bool. False comes before true.</summary>
    public static implicit operator KvKeyPart(bool value) => new(KvKeyPartKind.Bool, value ? 1 : 0);

    /// <summary>A Guid. The order is that of its text, which is that of <see cref="Guid.CompareTo(Guid)"/>.</summary>
    public static implicit operator KvKeyPart(Guid guid)
    {
        Span<byte> bytes = stackalloc byte[KeyParts.GuidBytes];
        guid.TryWriteBytes(bytes, bigEndian: true, out _);
        return new(KvKeyPartKind.Guid, BinaryPrimitives.ReadInt128BigEndian(bytes));
    }

    /// <summary>A moment, to 100 ns. The offset is not kept: two times at the same moment are the same part.</summary>
    public static implicit operator KvKeyPart(DateTimeOffset moment) => new(KvKeyPartKind.Moment, moment.UtcTicks);

    /// <summary>A number from that of the least <see cref="long"/> to that of the greatest <see cref="ulong"/>.</summary>
    internal static KvKeyPart OfNumber(Int128 number) => new(KvKeyPartKind.Number, number);

    /// <summary>The number of a part of a kind that has one.</summary>
    internal Int128 NumberOf(KvKeyPartKind kind) => Kind == kind ? _number : throw IsNot(kind);

    private InvalidOperationException IsNot(KvKeyPartKind kind) =>
        new($"The part of the key is {Kind} and not {kind}. Look at {nameof(Kind)} before parts of keys that others have made are converted.");
}

/// <summary>The kinds of parts of a composite key, in the order in which keys have them.</summary>
public enum KvKeyPartKind
{
    /// <summary>Without a value.</summary>
    Null,

    /// <summary>True or false.</summary>
    Bool,

    /// <summary>An integer from that of the least <see cref="long"/> to that of the greatest <see cref="ulong"/>.</summary>
    Number,

    /// <summary>A <see cref="DateTimeOffset"/> without its offset.</summary>
    Moment,

    /// <summary>A <see cref="System.Guid"/>.</summary>
    Guid,

    /// <summary>Bytes, in their own order.</summary>
    Bytes,

    /// <summary>Text, in the order of its code points, which is that of its UTF-8.</summary>
    Text,
}
