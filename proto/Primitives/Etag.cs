using System.Buffers.Binary;
using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Runtime.Intrinsics;
using System.Text;

namespace KvCluster;

/// <summary>
/// The position of a change in its shard's history: (epoch, change), 128 bits, compared as a pair, epoch first. A later change
/// of a shard has a greater etag, across failovers, restarts and splits. Etags of different shards do not compare. The leader assigns them: the first of a
/// record in <c>GroupCommit.MergeQueued</c>, one to each of its changes in <c>RecordApplier.ApplyOperations</c>.
/// </summary>
/// <param name="Epoch">The epoch of the leader that ordered the change; 0 before the first.</param>
/// <param name="Change">The shard's change counter; strictly increasing, never reset.</param>
/// <remarks>
/// The text form is that of RavenDB: 36 characters, upper-case hex of the big-endian bytes in 8-4-4-4-12 groups, so that text order is etag order.
/// Parsing also takes lower case. Neither direction allocates, nor branches on digits: both work on vectors, which .NET emulates on processors without them.
/// </remarks>
public readonly record struct Etag(ulong Epoch, ulong Change)
    : IComparable<Etag>, ISpanFormattable, IUtf8SpanFormattable, ISpanParsable<Etag>, IUtf8SpanParsable<Etag>
{
    /// <summary>Length of the text form in characters.</summary>
    public const int TextLength = 36;

    /// <summary>Length of the binary form in bytes.</summary>
    public const int ByteLength = 16;

    /// <summary>The etag before every change.</summary>
    public static readonly Etag None;

    /// <summary>No etag is greater.</summary>
    public static readonly Etag MaxValue = new(ulong.MaxValue, ulong.MaxValue);

    /// <summary>The greatest etag that is less than this one; <see cref="None"/> for <see cref="None"/>.</summary>
    public Etag Predecessor => Change > 0 ? new(Epoch, Change - 1) : Epoch > 0 ? new(Epoch - 1, ulong.MaxValue) : None;

    /// <summary>Writes the 16 big-endian bytes; byte order is etag order.</summary>
    public void WriteTo(Span<byte> destination)
    {
        BinaryPrimitives.WriteUInt64BigEndian(destination, Epoch);
        BinaryPrimitives.WriteUInt64BigEndian(destination[8..], Change);
    }

    /// <summary>Reads the form that <see cref="WriteTo"/> writes.</summary>
    public static Etag ReadFrom(ReadOnlySpan<byte> source) =>
        new(BinaryPrimitives.ReadUInt64BigEndian(source), BinaryPrimitives.ReadUInt64BigEndian(source[8..]));

    /// <summary>The earlier of two etags of a shard.</summary>
    public static Etag Min(Etag left, Etag right) => left < right ? left : right;

    /// <summary>The later of two etags of a shard.</summary>
    public static Etag Max(Etag left, Etag right) => left > right ? left : right;

    /// <inheritdoc/>
    public int CompareTo(Etag other) => this < other ? -1 : this > other ? 1 : 0;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static bool operator <(Etag left, Etag right) => left.Epoch < right.Epoch || (left.Epoch == right.Epoch && left.Change < right.Change);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static bool operator >(Etag left, Etag right) => left.Epoch > right.Epoch || (left.Epoch == right.Epoch && left.Change > right.Change);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static bool operator <=(Etag left, Etag right) => left.Epoch < right.Epoch || (left.Epoch == right.Epoch && left.Change <= right.Change);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static bool operator >=(Etag left, Etag right) => left.Epoch > right.Epoch || (left.Epoch == right.Epoch && left.Change >= right.Change);

    /// <summary>The etag of the next change in the same epoch.</summary>
    public static Etag operator ++(Etag etag) => new(etag.Epoch, etag.Change + 1);

    /// <inheritdoc/>
    public override string ToString() => string.Create(TextLength, this, static (text, etag) => etag.TryFormat(text, out _));

    /// <inheritdoc/>
    public string ToString(string? format, IFormatProvider? formatProvider) => ToString();

    /// <summary>Writes the text form. Format and provider are ignored.</summary>
    /// <param name="destination">The text is written to its start.</param>
    /// <param name="charsWritten"><see cref="TextLength"/>, or 0 if the destination is shorter.</param>
    /// <returns>False if the destination is shorter; it is left as it was.</returns>
    public bool TryFormat(Span<char> destination, out int charsWritten, ReadOnlySpan<char> format = default, IFormatProvider? provider = null)
    {
        charsWritten = 0;
        if (destination.Length < TextLength)
            return false;
        var text = MemoryMarshal.Cast<char, ushort>(destination);
        WriteText(out var first, out var second, out var rest);
        Vector128.WidenLower(first).CopyTo(text);
        Vector128.WidenUpper(first).CopyTo(text[8..]);
        Vector128.WidenLower(second).CopyTo(text[16..]);
        Vector128.WidenUpper(second).CopyTo(text[24..]);
        Vector128.WidenLower(rest).GetLower().CopyTo(text[32..]);
        charsWritten = TextLength;
        return true;
    }

    /// <summary>Writes the text form as UTF-8. Format and provider are ignored.</summary>
    /// <param name="utf8Destination">The text is written to its start.</param>
    /// <param name="bytesWritten"><see cref="TextLength"/>, or 0 if the destination is shorter.</param>
    /// <returns>False if the destination is shorter; it is left as it was.</returns>
    public bool TryFormat(Span<byte> utf8Destination, out int bytesWritten, ReadOnlySpan<char> format = default, IFormatProvider? provider = null)
    {
        bytesWritten = 0;
        if (utf8Destination.Length < TextLength)
            return false;
        WriteText(out var first, out var second, out var rest);
        first.CopyTo(utf8Destination);
        second.CopyTo(utf8Destination[16..]);
        MemoryMarshal.Write(utf8Destination[32..], rest.AsUInt32().ToScalar());
        bytesWritten = TextLength;
        return true;
    }

    /// <inheritdoc/>
    public static Etag Parse(string s, IFormatProvider? provider = null) => Parse(s.AsSpan(), provider);

    /// <inheritdoc/>
    public static Etag Parse(ReadOnlySpan<char> s, IFormatProvider? provider = null) => TryParse(s, provider, out var etag) ? etag : throw NotAnEtag(s);

    /// <inheritdoc/>
    public static Etag Parse(ReadOnlySpan<byte> utf8Text, IFormatProvider? provider = null) =>
        TryParse(utf8Text, provider, out var etag) ? etag : throw NotAnEtag(Encoding.UTF8.GetString(utf8Text));

    /// <inheritdoc/>
    public static bool TryParse([NotNullWhen(true)] string? s, IFormatProvider? provider, out Etag result) => TryParse(s.AsSpan(), provider, out result);

    /// <inheritdoc/>
    public static bool TryParse(ReadOnlySpan<char> s, IFormatProvider? provider, out Etag result)
    {
        result = default;
        if (s.Length != TextLength)
            return false;
        var text = MemoryMarshal.Cast<char, ushort>(s);
        return TryReadText(Narrow(text), Narrow(text[16..]), Narrow(text[20..]), out result);

        // A character beyond one byte saturates, so it does not become a digit.
        static Vector128<byte> Narrow(ReadOnlySpan<ushort> text) => Vector128.NarrowWithSaturation(Vector128.Create(text), Vector128.Create(text[8..]));
    }

    /// <inheritdoc/>
    public static bool TryParse(ReadOnlySpan<byte> utf8Text, IFormatProvider? provider, out Etag result)
    {
        result = default;
        return utf8Text.Length == TextLength
            && TryReadText(Vector128.Create(utf8Text), Vector128.Create(utf8Text[16..]), Vector128.Create(utf8Text[20..]), out result);
    }

    private static FormatException NotAnEtag(ReadOnlySpan<char> text) =>
        new($"'{text}' is not an etag, which is 32 hexadecimal digits in groups of 8-4-4-4-12.");

    // The text's characters 0 to 15, 16 to 31, and 32 to 35. An index of 255 in a shuffle leaves a zero, into which the others are combined.
    private void WriteText(out Vector128<byte> first, out Vector128<byte> second, out Vector128<byte> rest)
    {
        var (epoch, change) = (DigitsOf(Epoch), DigitsOf(Change));
        first = Vector128.Shuffle(epoch, Vector128.Create(0, 1, 2, 3, 4, 5, 6, 7, 255, 8, 9, 10, 11, 255, 12, 13))
            | Vector128.Create(0, 0, 0, 0, 0, 0, 0, 0, (byte)'-', 0, 0, 0, 0, (byte)'-', 0, 0);
        second = Vector128.Shuffle(epoch, Vector128.Create(14, 15, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255))
            | Vector128.Shuffle(change, Vector128.Create(255, 255, 255, 0, 1, 2, 3, 255, 4, 5, 6, 7, 8, 9, 10, 11))
            | Vector128.Create(0, 0, (byte)'-', 0, 0, 0, 0, (byte)'-', 0, 0, 0, 0, 0, 0, 0, 0);
        rest = Vector128.Shuffle(change, Vector128.Create(12, 13, 14, 15, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255));
    }

    // The text's characters 0 to 15, 16 to 31, and 20 to 35.
    private static bool TryReadText(Vector128<byte> first, Vector128<byte> second, Vector128<byte> last, out Etag etag)
    {
        var hyphens = Vector128.Shuffle(first, Vector128.Create(8, 13, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255))
            | Vector128.Shuffle(second, Vector128.Create(255, 255, 2, 7, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255));
        var epoch = Vector128.Shuffle(first, Vector128.Create(0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 255, 255))
            | Vector128.Shuffle(second, Vector128.Create(255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 1));
        var change = Vector128.Shuffle(second, Vector128.Create(3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255))
            | Vector128.Shuffle(last, Vector128.Create(255, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        var isEtag = TryReadDigits(epoch, out var epochNumber) & TryReadDigits(change, out var changeNumber)
            & (hyphens.AsUInt32().ToScalar() == 0x2D2D2D2D);
        etag = isEtag ? new Etag(epochNumber, changeNumber) : default;
        return isEtag;
    }

    // The 16 digits of a number.
    private static Vector128<byte> DigitsOf(ulong number)
    {
        // One byte to a lane, which becomes two digits, the more significant first in memory.
        var pairs = Vector128.WidenLower(Vector128.CreateScalar(BinaryPrimitives.ReverseEndianness(number)).AsByte());
        var digits = ((pairs >> 4) | (pairs << 8)).AsByte() & Vector128.Create((byte)0x0F);
        var isLetter = Vector128.GreaterThan(digits.AsSByte(), Vector128.Create((sbyte)9)).AsByte();
        return digits + Vector128.Create((byte)'0') + (isLetter & Vector128.Create((byte)('A' - '0' - 10)));
    }

    // The inverse of DigitsOf. Returns false if some character is not a digit.
    private static bool TryReadDigits(Vector128<byte> text, out ulong number)
    {
        var digits = text - Vector128.Create((byte)'0');
        var isDigit = Vector128.LessThan(digits, Vector128.Create((byte)10));
        var letters = (text | Vector128.Create((byte)0x20)) - Vector128.Create((byte)'a');
        var isLetter = Vector128.LessThan(letters, Vector128.Create((byte)6));
        var pairs = Vector128.ConditionalSelect(isDigit, digits, letters + Vector128.Create((byte)10)).AsUInt16();
        var bytes = ((pairs << 4) | (pairs >> 8)) & Vector128.Create((ushort)0xFF);
        number = BinaryPrimitives.ReverseEndianness(Vector128.Narrow(bytes, bytes).AsUInt64().ToScalar());
        return (isDigit | isLetter) == Vector128<byte>.AllBitsSet;
    }
}
