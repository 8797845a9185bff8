using System.Globalization;
using System.Text;
using Xunit.Abstractions;

namespace KvCluster.Tests.Primitives;

/// <summary>The order of etags, which is the order of their bytes and of their text, and the text.</summary>
public sealed class EtagTests(ITestOutputHelper output)
{
    private const string Digits = "0123456789ABCDEFabcdef";

    private static readonly Etag[] Ascending =
    [
        Etag.None,
        new(0, 1), new(0, ulong.MaxValue), new(1, 0), new(1, 1), new(1, 1ul << 63), new(2, 0), new(1ul << 63, 5), new(ulong.MaxValue, 0), Etag.MaxValue,
    ];

    [Fact]
    public void Order_OfAllPairs_IsThatOfBytesAndText()
    {
        foreach (var (left, leftAt) in Ascending.Select(static (etag, at) => (etag, at)))
        {
            foreach (var (right, rightAt) in Ascending.Select(static (etag, at) => (etag, at)))
            {
                var order = leftAt.CompareTo(rightAt);
                Assert.Equal(order, left.CompareTo(right));
                Assert.Equal(
                    (order < 0, order <= 0, order > 0, order >= 0, order == 0), (left < right, left <= right, left > right, left >= right, left == right));
                Assert.Equal(order, Math.Sign(Bytes(left).AsSpan().SequenceCompareTo(Bytes(right))));
                Assert.Equal(order, Math.Sign(string.CompareOrdinal($"{left}", $"{right}")));
                Assert.Equal(order < 0 ? left : right, Etag.Min(left, right));
                Assert.Equal(order < 0 ? right : left, Etag.Max(left, right));
            }
        }
    }

    [Fact]
    public void Forms_OfBytesAndText_AreReadBack() =>
        Assert.All(Ascending, static etag => Assert.Equal((etag, etag), (Etag.ReadFrom(Bytes(etag)), Etag.Parse($"{etag}"))));

    [Fact]
    public void Increment_NamesTheNextChangeOfTheEpoch()
    {
        var etag = new Etag(3, 4);
        etag++;
        Assert.Equal(new Etag(3, 5), etag);
    }

    [Fact]
    public void Predecessor_AcrossEpochsAndOfNone_IsTheGreatestLesserEtag()
    {
        Assert.Equal(new Etag(3, 4), new Etag(3, 5).Predecessor);
        Assert.Equal(new Etag(2, ulong.MaxValue), new Etag(3, 0).Predecessor);
        Assert.Equal(Etag.None, Etag.None.Predecessor);
    }

    /// <summary>The text is written and read by vectors, so it is compared with what .NET's own formatting and parsing of numbers make of it.</summary>
    [Fact]
    public void Text_OfRandomEtags_IsThatOfTheirNumbersAndIsReadBack()
    {
        var random = Seeds.Next(output);
        Span<char> text = stackalloc char[Etag.TextLength];
        Span<byte> utf8 = stackalloc byte[Etag.TextLength];
        for (var round = 0; round < 100_000; round++)
        {
            // Of all lengths, with each digit at each place.
            var etag = new Etag(
                (ulong)random.NextInt64(long.MinValue, long.MaxValue) >> random.Next(64),
                (ulong)random.NextInt64(long.MinValue, long.MaxValue) >> random.Next(64));
            var digits = $"{etag.Epoch:X16}{etag.Change:X16}";
            var expected = $"{digits[..8]}-{digits[8..12]}-{digits[12..16]}-{digits[16..20]}-{digits[20..]}";
            Assert.True(etag.TryFormat(text, out var chars));
            Assert.True(etag.TryFormat(utf8, out var bytes));
            Assert.Equal((Etag.TextLength, Etag.TextLength), (chars, bytes));
            Assert.Equal((expected, expected, expected), (new string(text), Encoding.UTF8.GetString(utf8), etag.ToString()));
            Assert.Equal((etag, etag), (Etag.Parse(text), Etag.Parse(utf8)));
            var mixed = string.Concat(expected.Select(digit => random.Next(2) == 0 ? char.ToLowerInvariant(digit) : digit));
            Assert.Equal((etag, etag), (Etag.Parse(mixed), Etag.Parse(Encoding.UTF8.GetBytes(mixed))));
        }
    }

    [Fact]
    [Trait("Turn", "1")]
    public void TryParse_WithAnyCharacterAtAnyPlace_AcceptsDigitsAndHyphensOnly()
    {
        const string Good = "01234567-89AB-CDEF-fedc-ba9876543210";
        var utf8 = Encoding.UTF8.GetBytes(Good);
        for (var place = 0; place < Etag.TextLength; place++)
        {
            var text = Good.ToCharArray();
            for (var character = 0; character <= char.MaxValue; character++)
            {
                text[place] = (char)character;
                var isGood = Good[place] == '-' ? character == '-' : Digits.Contains((char)character);
                Assert.True(isGood == Etag.TryParse(text, null, out var etag), $"character {character:X4} at {place}");
                Assert.Equal(isGood ? Plain(text) : default, etag);
                if (character > byte.MaxValue)
                    continue;
                (var kept, utf8[place]) = (utf8[place], (byte)character);
                Assert.True(isGood == Etag.TryParse(utf8, null, out etag), $"byte {character:X2} at {place}");
                Assert.Equal(isGood ? Plain(text) : default, etag);
                utf8[place] = kept;
            }
        }

        static Etag Plain(ReadOnlySpan<char> text)
        {
            var digits = text.ToString().Replace("-", "", StringComparison.Ordinal);
            return new(
                ulong.Parse(digits[..16], NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture),
                ulong.Parse(digits[16..], NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture));
        }
    }

    [Fact]
    public void TryParse_OfAnotherLength_IsRefused()
    {
        var text = Etag.MaxValue + "0";
        for (var length = 0; length <= text.Length; length++)
        {
            var start = text[..length];
            Assert.Equal(length == Etag.TextLength, Etag.TryParse(start, null, out _));
            Assert.Equal(length == Etag.TextLength, Etag.TryParse(Encoding.UTF8.GetBytes(start), null, out _));
        }
        Assert.False(Etag.TryParse((string?)null, null, out _));
        Assert.Contains("'x' is not an etag", Assert.Throws<FormatException>(static () => Etag.Parse("x")).Message, StringComparison.Ordinal);
        Assert.Contains("'x' is not an etag", Assert.Throws<FormatException>(static () => Etag.Parse("x"u8)).Message, StringComparison.Ordinal);
    }

    [Fact]
    public void TryFormat_WithAnyRoom_WritesTheTextOrNothing()
    {
        for (var room = 0; room <= Etag.TextLength + 1; room++)
        {
            var (text, utf8) = (new char[room], new byte[room]);
            var fits = room >= Etag.TextLength;
            Assert.Equal((fits, fits), (Etag.MaxValue.TryFormat(text, out var chars), Etag.MaxValue.TryFormat(utf8, out var bytes)));
            Assert.Equal(fits ? (Etag.TextLength, Etag.TextLength) : (0, 0), (chars, bytes));
            var expected = fits ? $"{Etag.MaxValue}".PadRight(room, '\0') : new string('\0', room);
            Assert.Equal((expected, expected), (new string(text), Encoding.UTF8.GetString(utf8)));
        }
    }

    [Fact]
    public void TextOfEtags_AllocatesNothing()
    {
        var isSame = true;
        var allocated = Allocations.Of(() =>
        {
            Span<char> text = stackalloc char[Etag.TextLength];
            Span<byte> utf8 = stackalloc byte[Etag.TextLength];
            for (var etag = new Etag(7, 0); etag.Change < 10_000; etag++)
            {
                isSame &= etag.TryFormat(text, out _) && Etag.TryParse(text, null, out var read) && read == etag;
                isSame &= etag.TryFormat(utf8, out _) && Etag.TryParse(utf8, null, out read) && read == etag;
            }
        });
        Assert.InRange(allocated, 0, Allocations.Context);
        Assert.True(isSame);
    }

    private static byte[] Bytes(Etag etag)
    {
        var bytes = new byte[Etag.ByteLength];
        etag.WriteTo(bytes);
        return bytes;
    }
}
