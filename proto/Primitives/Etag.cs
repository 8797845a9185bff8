using System.Buffers.Binary;
using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using System.Runtime.CompilerServices;

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
/// </remarks>
public readonly record struct Etag(ulong Epoch, ulong Change) : IComparable<Etag>, ISpanFormattable, ISpanParsable<Etag>
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
    public override string ToString() => string.Create(TextLength, this, static (text, etag) => etag.TryFormat(text, out _, default, null));

    /// <inheritdoc/>
    public string ToString(string? format, IFormatProvider? formatProvider) => ToString();

    /// <inheritdoc/>
    public bool TryFormat(Span<char> destination, out int charsWritten, ReadOnlySpan<char> format, IFormatProvider? provider) =>
        destination.TryWrite(
            CultureInfo.InvariantCulture,
            $"{Epoch >> 32:X8}-{(ushort)(Epoch >> 16):X4}-{(ushort)Epoch:X4}-{(ushort)(Change >> 48):X4}-{Change & 0xFFFF_FFFF_FFFF:X12}",
            out charsWritten);

    /// <inheritdoc/>
    public static Etag Parse(string s, IFormatProvider? provider = null) => Parse(s.AsSpan(), provider);

    /// <inheritdoc/>
    public static Etag Parse(ReadOnlySpan<char> s, IFormatProvider? provider = null) =>
        TryParse(s, provider, out var etag) ? etag : throw new FormatException($"'{s}' is not an etag, which is 32 hexadecimal digits in groups of 8-4-4-4-12.");

    /// <inheritdoc/>
    public static bool TryParse([NotNullWhen(true)] string? s, IFormatProvider? provider, out Etag result) => TryParse(s.AsSpan(), provider, out result);

    /// <inheritdoc/>
    public static bool TryParse(ReadOnlySpan<char> s, IFormatProvider? provider, out Etag result)
    {
        result = default;
        if (s.Length != TextLength || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-')
            return false;
        Span<char> digits = stackalloc char[32];
        s[..8].CopyTo(digits);
        s[9..13].CopyTo(digits[8..]);
        s[14..18].CopyTo(digits[12..]);
        s[19..23].CopyTo(digits[16..]);
        s[24..].CopyTo(digits[20..]);
        if (!ulong.TryParse(digits[..16], NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var epoch)
            || !ulong.TryParse(digits[16..], NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var change))
            return false;
        result = new Etag(epoch, change);
        return true;
    }
}
