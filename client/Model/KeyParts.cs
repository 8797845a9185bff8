using System.Buffers;
using System.Buffers.Binary;
using System.Diagnostics.CodeAnalysis;
using System.Numerics;
using System.Text;
using System.Text.Unicode;

namespace KvCluster.Client;

/// <summary>
/// The bytes of composite keys, which client/KEYS.md describes. Each part has one encoding, which is no beginning of that of another part: so keys are ordered
/// as their parts are, and the bytes of some parts begin the keys that have these parts first, and no others. Pure.
/// </summary>
internal static class KeyParts
{
    /// <summary>The bytes of a Guid.</summary>
    public const int GuidBytes = 16;

    // The first byte of a part says what it is. All are less than 0x20, so that a key of text is not taken for one of parts.
    private const byte NullCode = 0x01;
    private const byte FalseCode = 0x02;
    private const byte TrueCode = 0x03;

    // Zero. A positive number adds how many bytes follow, and a negative one subtracts it.
    private const byte ZeroCode = 0x0c;
    private const byte MomentCode = 0x16;
    private const byte GuidCode = 0x17;
    private const byte BytesCode = 0x18;
    private const byte TextCode = 0x19;

    // Bytes and text end with a byte that they do not have: it and the escape are written as two bytes, the second of which is one more than they.
    private const byte End = 0x00;
    private const byte Escape = 0x01;

    /// <exception cref="ArgumentException">The key would be too long, or a text has half of a surrogate pair.</exception>
    public static byte[] Encode(ReadOnlySpan<KvKeyPart> parts)
    {
        Span<byte> key = stackalloc byte[KvLimits.KeyBytesMax];
        var length = 0;
        foreach (var part in parts)
        {
            if (!TryWrite(part, key[length..], out var written))
                throw new ArgumentException(
                    $"The {parts.Length} parts need more than {KvLimits.KeyBytesMax:N0} bytes, so they make no key. Make them shorter.", nameof(parts));
            length += written;
        }
        return key[..length].ToArray();
    }

    /// <summary>Returns false for whatever <see cref="Encode"/> does not make.</summary>
    public static bool TryDecode(ReadOnlySpan<byte> key, [NotNullWhen(true)] out IReadOnlyList<KvKeyPart>? parts)
    {
        parts = null;
        if (key.Length > KvLimits.KeyBytesMax)
            return false;
        var read = new List<KvKeyPart>();
        while (!key.IsEmpty)
        {
            if (!TryRead(key[0], key[1..], out var part, out var contentBytes))
                return false;
            read.Add(part);
            key = key[(1 + contentBytes)..];
        }
        parts = read;
        return true;
    }

    private static bool TryWrite(KvKeyPart part, Span<byte> to, out int written) => part.Kind switch
    {
        KvKeyPartKind.Bool => TryWriteCode(part.ToBool() ? TrueCode : FalseCode, to, out written),
        KvKeyPartKind.Number => TryWriteNumber(part.NumberOf(KvKeyPartKind.Number), to, out written),
        KvKeyPartKind.Moment => TryWriteMoment((long)part.NumberOf(KvKeyPartKind.Moment), to, out written),
        KvKeyPartKind.Guid => TryWriteGuid(part.NumberOf(KvKeyPartKind.Guid), to, out written),
        KvKeyPartKind.Bytes => TryWriteEscaped(BytesCode, part.ToBytes().Span, to, out written),
        KvKeyPartKind.Text => TryWriteText(part.ToText(), to, out written),
        _ => TryWriteCode(NullCode, to, out written),
    };

    private static bool TryWriteCode(byte code, Span<byte> to, out int written)
    {
        written = 1;
        if (to.IsEmpty)
            return false;
        to[0] = code;
        return true;
    }

    // As few bytes as the magnitude has. Those of a negative number are inverted, because of two the one with the greater magnitude comes first.
    private static bool TryWriteNumber(Int128 number, Span<byte> to, out int written)
    {
        var isNegative = number < 0;
        var magnitude = (ulong)(isNegative ? -number : number);
        var bytes = BytesOf(magnitude);
        written = 1 + bytes;
        if (to.Length < written)
            return false;
        to[0] = (byte)(isNegative ? ZeroCode - bytes : ZeroCode + bytes);
        Span<byte> all = stackalloc byte[sizeof(ulong)];
        BinaryPrimitives.WriteUInt64BigEndian(all, isNegative ? ~magnitude : magnitude);
        all[^bytes..].CopyTo(to[1..]);
        return true;
    }

    private static bool TryWriteMoment(long ticks, Span<byte> to, out int written)
    {
        written = 1 + sizeof(long);
        if (to.Length < written)
            return false;
        to[0] = MomentCode;
        BinaryPrimitives.WriteInt64BigEndian(to[1..], ticks);
        return true;
    }

    private static bool TryWriteGuid(Int128 guid, Span<byte> to, out int written)
    {
        written = 1 + GuidBytes;
        if (to.Length < written)
            return false;
        to[0] = GuidCode;
        BinaryPrimitives.WriteInt128BigEndian(to[1..], guid);
        return true;
    }

    private static bool TryWriteText(string text, Span<byte> to, out int written)
    {
        written = 0;
        // No character of UTF-16 has less than a byte.
        if (text.Length > KvLimits.KeyBytesMax)
            return false;
        Span<byte> utf8 = stackalloc byte[KvLimits.KeyBytesMax];
        return Utf8.FromUtf16(text, utf8, out _, out var length, replaceInvalidSequences: false) switch
        {
            OperationStatus.Done => TryWriteEscaped(TextCode, utf8[..length], to, out written),
            OperationStatus.DestinationTooSmall => false,
            _ => throw Utf8Text.HalfOfAPair(),
        };
    }

    private static bool TryWriteEscaped(byte code, ReadOnlySpan<byte> bytes, Span<byte> to, out int written)
    {
        written = 2 + bytes.Length + bytes.Count(End) + bytes.Count(Escape);
        if (to.Length < written)
            return false;
        var at = 0;
        to[at++] = code;
        foreach (var one in bytes)
        {
            if (one is End or Escape)
            {
                to[at++] = Escape;
                to[at++] = (byte)(one + 1);
            }
            else
            {
                to[at++] = one;
            }
        }
        to[at] = End;
        return true;
    }

    private static bool TryRead(byte code, ReadOnlySpan<byte> content, out KvKeyPart part, out int bytes)
    {
        part = default;
        bytes = 0;
        switch (code)
        {
            case NullCode:
                return true;
            case FalseCode or TrueCode:
                part = code == TrueCode;
                return true;
            case >= ZeroCode - sizeof(ulong) and <= ZeroCode + sizeof(ulong):
                bytes = Math.Abs(code - ZeroCode);
                return content.Length >= bytes && TryReadNumber(content[..bytes], code < ZeroCode, out part);
            case MomentCode:
                bytes = sizeof(long);
                return content.Length >= bytes && TryReadMoment(BinaryPrimitives.ReadInt64BigEndian(content), out part);
            case GuidCode:
                bytes = GuidBytes;
                if (content.Length < bytes)
                    return false;
                part = new Guid(content[..bytes], bigEndian: true);
                return true;
            case BytesCode or TextCode:
                return TryReadEscaped(content, out var unescaped, out bytes) && TryReadUnescaped(code, unescaped, out part);
            default:
                return false;
        }
    }

    private static bool TryReadNumber(ReadOnlySpan<byte> content, bool isNegative, out KvKeyPart part)
    {
        Span<byte> all = stackalloc byte[sizeof(ulong)];
        all.Fill(isNegative ? byte.MaxValue : byte.MinValue);
        content.CopyTo(all[^content.Length..]);
        var read = BinaryPrimitives.ReadUInt64BigEndian(all);
        var magnitude = isNegative ? ~read : read;
        var number = isNegative ? -(Int128)magnitude : magnitude;
        part = KvKeyPart.OfNumber(number);
        // A number with more bytes than it needs would be another key with the same parts.
        return BytesOf(magnitude) == content.Length && number >= long.MinValue;
    }

    private static bool TryReadMoment(long ticks, out KvKeyPart part)
    {
        var isMoment = ticks >= 0 && ticks <= DateTime.MaxValue.Ticks;
        part = isMoment ? new DateTimeOffset(ticks, TimeSpan.Zero) : default(KvKeyPart);
        return isMoment;
    }

    private static bool TryReadEscaped(ReadOnlySpan<byte> content, out byte[] unescaped, out int bytes)
    {
        unescaped = [];
        bytes = 0;
        var end = content.IndexOf(End);
        if (end < 0)
            return false;
        bytes = end + 1;
        var read = new byte[end];
        var count = 0;
        for (var at = 0; at < end; at++)
        {
            var one = content[at];
            if (one == Escape)
            {
                // At the latest the end follows, which is not the second byte of two.
                var second = content[++at];
                if (second is not (End + 1 or Escape + 1))
                    return false;
                one = (byte)(second - 1);
            }
            read[count++] = one;
        }
        unescaped = read[..count];
        return true;
    }

    private static bool TryReadUnescaped(byte code, byte[] unescaped, out KvKeyPart part)
    {
        part = unescaped;
        if (code == BytesCode)
            return true;
        if (!Utf8.IsValid(unescaped))
            return false;
        part = Encoding.UTF8.GetString(unescaped);
        return true;
    }

    // 0 to 8.
    private static int BytesOf(ulong magnitude) => sizeof(ulong) - (BitOperations.LeadingZeroCount(magnitude) / 8);
}
