using KvCluster.Client;

namespace KvCluster.Tests.Client;

/// <summary>
/// Composite keys: their bytes, which are in stored data, their order, which is that of their parts, and their use as prefixes, which is exact. Bytes that are
/// no composite key are refused without an exception.
/// </summary>
public sealed class CompositeKeyTests
{
    private const int KeysOfASeed = 60;

    private static readonly Guid Id = Guid.ParseExact("00112233-4455-6677-8899-aabbccddeeff", "D");

    private static readonly (string Bytes, KvKey Key)[] Pinned =
    [
        ("", KvKey.Of()),
        ("01", KvKey.Of(KvKeyPart.Null)),
        ("01", KvKey.Of((string?)null)),
        ("01", KvKey.Of((byte[]?)null)),
        ("02", KvKey.Of(false)),
        ("03", KvKey.Of(true)),
        ("047FFFFFFFFFFFFFFF", KvKey.Of(long.MinValue)),
        ("09FEFFFF", KvKey.Of(-65_536)),
        ("0AFEFE", KvKey.Of(-257)),
        ("0AFEFF", KvKey.Of(-256)),
        ("0B00", KvKey.Of(-255)),
        ("0BFE", KvKey.Of(-1L)),
        ("0C", KvKey.Of(0)),
        ("0D01", KvKey.Of(1u)),
        ("0DFF", KvKey.Of(255)),
        ("0E0100", KvKey.Of(256UL)),
        ("0E07EA", KvKey.Of(2026)),
        ("147FFFFFFFFFFFFFFF", KvKey.Of(long.MaxValue)),
        ("148000000000000000", KvKey.Of(1UL << 63)),
        ("14FFFFFFFFFFFFFFFF", KvKey.Of(ulong.MaxValue)),
        ("160000000000000000", KvKey.Of(DateTimeOffset.MinValue)),
        ("1608DF4DFF87C91000", KvKey.Of(new DateTimeOffset(2026, 11, 29, 12, 0, 0, TimeSpan.FromHours(2)))),
        ("162BCA2875F4373FFF", KvKey.Of(DateTimeOffset.MaxValue)),
        ("1700112233445566778899AABBCCDDEEFF", KvKey.Of(Id)),
        ("1800", KvKey.Of((byte[])[])),
        ("180101010202FF00", KvKey.Of(new ReadOnlyMemory<byte>([0, 1, 2, 255]))),
        ("1900", KvKey.Of("")),
        ("19C3A901010102F09F988000", KvKey.Of("é\0\u0001😀")),
        ("196F7264657273000E07EA0D0B1700112233445566778899AABBCCDDEEFF", KvKey.Of("orders", 2026, 11, Id)),
    ];

    /// <summary>Numbers around those at which the number of bytes grows.</summary>
    private static readonly Int128[] Edges =
    [
        .. Enumerable.Range(0, 9).SelectMany(static bytes => (Int128[])[(Int128.One << (8 * bytes)) - 1, Int128.One << (8 * bytes)]).SelectMany(
            static edge => (Int128[])[edge, -edge]).Where(static edge => edge >= long.MinValue && edge <= ulong.MaxValue),
        long.MinValue, long.MaxValue, 2026,
    ];

    private static readonly string[] Letters = ["\0", "\u0001", "\u0002", "a", "b", "é", "\ue000", "\uffff", "😀"];

    [Fact]
    public void Bytes_AreThoseOfStoredKeys() => Assert.All(Pinned, static pinned => Assert.Equal(pinned.Bytes, Convert.ToHexString(pinned.Key.Span)));

    [Fact]
    public void Parts_AreReadBack()
    {
        var moment = new DateTimeOffset(2026, 11, 29, 12, 0, 0, TimeSpan.FromHours(2));
        Assert.True(KvKey.Of("orders", 2026, -1L, ulong.MaxValue, Id, true, moment, "bytes"u8.ToArray(), KvKeyPart.Null).TryRead(out var parts));
        Assert.Equal(9, parts.Count);
        Assert.Equal("orders", parts[0].ToText());
        Assert.Equal((2026, 2026L, 2026UL), (parts[1].ToInt32(), parts[1].ToInt64(), parts[1].ToUInt64()));
        Assert.Equal(-1, parts[2].ToInt64());
        Assert.Equal(ulong.MaxValue, parts[3].ToUInt64());
        Assert.Equal(Id, parts[4].ToGuid());
        Assert.True(parts[5].ToBool());
        Assert.Equal((moment, TimeSpan.Zero), (parts[6].ToDateTimeOffset(), parts[6].ToDateTimeOffset().Offset));
        Assert.Equal("bytes"u8.ToArray(), parts[7].ToBytes().ToArray());
        Assert.Equal(KvKeyPartKind.Null, parts[8].Kind);
        Assert.Equal(
            "orders 2026 -1 18446744073709551615 00112233-4455-6677-8899-aabbccddeeff true 2026-11-29T10:00:00.0000000+00:00 0x6279746573 null",
            string.Join(' ', parts));
    }

    [Fact]
    public void Part_OfAnotherKindOrTooLarge_IsNotConverted()
    {
        KvKeyPart text = "7";
        Assert.Throws<InvalidOperationException>(() => text.ToInt64());
        Assert.Throws<InvalidOperationException>(() => text.ToGuid());
        Assert.Throws<InvalidOperationException>(() => text.ToBytes());
        Assert.Throws<InvalidOperationException>(() => KvKeyPart.Null.ToText());
        KvKeyPart number = -1;
        Assert.Throws<OverflowException>(() => number.ToUInt64());
        Assert.Throws<InvalidOperationException>(() => number.ToBool());
        number = ulong.MaxValue;
        Assert.Throws<OverflowException>(() => number.ToInt64());
        Assert.Throws<OverflowException>(() => number.ToInt32());
    }

    [Fact]
    public void Number_OfAnyType_IsTheSamePart()
    {
        KvKeyPart part = 5;
        Assert.All((KvKeyPart[])[5u, 5L, 5UL], other => Assert.True(part == other && part.GetHashCode() == other.GetHashCode()));
        Assert.True(part != "5" && part != KvKeyPart.Null);
    }

    /// <summary>All pairs of random keys: bytes are ordered as parts are, and bytes begin with others exactly if parts do.</summary>
    [Fact]
    public void RandomKeys_AreOrderedAndBegin_AsTheirPartsDo() => Seeds.Run(10, static random =>
    {
        var keys = Enumerable.Range(0, KeysOfASeed).Select(_ => SomeParts(random)).Select(parts => (Parts: parts, Key: KeyOf(parts, random))).ToList();
        foreach (var (left, leftKey) in keys)
        {
            foreach (var (right, rightKey) in keys)
            {
                Assert.Equal(Compare(left, right), Math.Sign(leftKey.CompareTo(rightKey)));
                var isBeginning = left.Length <= right.Length && Compare(left, right[..left.Length]) == 0;
                Assert.Equal(isBeginning, rightKey.Span.StartsWith(leftKey.Span));
                var isInRange = rightKey.CompareTo(leftKey) >= 0 && (leftKey.PrefixEnd.IsEmpty || rightKey.CompareTo(leftKey.PrefixEnd) < 0);
                Assert.Equal(isBeginning, isInRange);
            }
        }
    });

    [Fact]
    public void RandomKeys_AreReadBack() => Seeds.Run(200, static random =>
    {
        var parts = SomeParts(random);
        var key = KeyOf(parts, random);
        Assert.True(key.TryRead(out var read));
        Assert.Equal(parts.Select(part => PartOf(part, random)), read);
        Assert.Equal(key, KvKey.Of([.. read]));
    });

    /// <summary>Whatever the bytes are, they are refused without an exception, or are what their parts make again.</summary>
    [Fact]
    public void HostileBytes_AreRefusedOrAreTheOnlyOnesOfTheirParts() => Seeds.Run(200, static random =>
    {
        for (var step = 0; step < 50; step++)
        {
            var bytes = random.Next(2) == 0 ? KeyOf(SomeParts(random), random).ToArray() : new byte[random.Next(40)];
            var changes = random.Next(1, 4);
            for (var change = 0; change < changes && bytes.Length > 0; change++)
                bytes[random.Next(bytes.Length)] = (byte)(random.Next(2) == 0 ? random.Next(0x20) : random.Next(0x100));
            KvKey key = bytes[..random.Next(bytes.Length + 1)];
            if (key.TryRead(out var parts))
                Assert.Equal(key, KvKey.Of([.. parts]));
            else
                Assert.Null(parts);
        }
    });

    [Theory]
    // Unknown codes, and text.
    [InlineData("00")]
    [InlineData("15")]
    [InlineData("1A")]
    [InlineData("6F7264657273")]
    // Cut short.
    [InlineData("0D")]
    [InlineData("14FFFFFFFFFFFFFF")]
    [InlineData("1608DF4DFF87C910")]
    [InlineData("1700112233445566778899AABBCCDDEE")]
    [InlineData("18")]
    [InlineData("1961")]
    [InlineData("196101")]
    // More bytes than the number needs, and a number below the least.
    [InlineData("0D00")]
    [InlineData("0E00FF")]
    [InlineData("0BFF")]
    [InlineData("0AFFFE")]
    [InlineData("047FFFFFFFFFFFFFFE")]
    // Another byte behind an escape, also the end.
    [InlineData("18010300")]
    [InlineData("180100")]
    // No moment, and no UTF-8.
    [InlineData("162BCA2875F4374000")]
    [InlineData("16FFFFFFFFFFFFFFFF")]
    [InlineData("19FF00")]
    [InlineData("19C000")]
    [InlineData("19EDA08000")]
    // What is whole does not save the rest.
    [InlineData("0C1961")]
    public void Bytes_ThatNoPartsMake_AreRefused(string bytes)
    {
        KvKey key = Convert.FromHexString(bytes);
        Assert.False(key.TryRead(out var parts));
        Assert.Null(parts);
    }

    [Fact]
    public void Keys_OfMoreThanTheMostBytes_AreNeitherMadeNorRead()
    {
        var longest = KvKey.Of(new string('a', 2_046));
        Assert.Equal(2_048, longest.Length);
        Assert.True(longest.TryRead(out _));
        Assert.Throws<ArgumentException>(() => KvKey.Of(new string('a', 2_047)));
        Assert.Throws<ArgumentException>(() => KvKey.Of(new string('é', 1_024)));
        Assert.Throws<ArgumentException>(() => KvKey.Of(new string('a', 1 << 20)));
        Assert.Throws<ArgumentException>(() => KvKey.Of(new byte[1_024]));
        Assert.Throws<ArgumentException>(() => KvKey.Of(new string('a', 2_046), KvKeyPart.Null));
        Assert.Throws<ArgumentException>(() => KvKey.Of(new string('a', 2_035), Id));
        KvKey nulls = Enumerable.Repeat((byte)1, 2_048).ToArray();
        Assert.True(nulls.TryRead(out var parts));
        Assert.Equal(2_048, parts.Count);
        KvKey more = Enumerable.Repeat((byte)1, 2_049).ToArray();
        Assert.False(more.TryRead(out _));
    }

    private static object?[] SomeParts(Random random) => [.. Enumerable.Range(0, random.Next(4)).Select(_ => SomePart(random))];

    // Few different ones, so that many keys begin alike.
    private static object? SomePart(Random random)
    {
        switch (random.Next(8))
        {
            case 0:
                return null;
            case 1:
                return random.Next(2) == 0;
            case 2:
                return Edges[random.Next(Edges.Length)];
            case 3:
                return (Int128)random.NextInt64(long.MinValue, long.MaxValue) >> random.Next(64);
            case 4:
                var moment = new DateTimeOffset(2026, 11, 29, 10, random.Next(2), 0, TimeSpan.Zero);
                return random.Next(4) == 0 ? DateTimeOffset.MaxValue : moment.ToOffset(TimeSpan.FromHours(random.Next(-12, 13)));
            case 5:
                var guid = new byte[16];
                guid[random.Next(16)] = (byte)(random.Next(2) == 0 ? 0x7f : 0x80);
                return new Guid(guid);
            case 6:
                return Enumerable.Range(0, random.Next(4)).Select(_ => (byte)(random.Next(2) == 0 ? random.Next(3) : random.Next(0xfd, 0x100))).ToArray();
            default:
                return string.Concat(Enumerable.Range(0, random.Next(4)).Select(_ => Letters[random.Next(Letters.Length)]));
        }
    }

    private static KvKey KeyOf(object?[] parts, Random random) => KvKey.Of([.. parts.Select(part => PartOf(part, random))]);

    private static KvKeyPart PartOf(object? part, Random random)
    {
        switch (part)
        {
            case bool value:
                return value;
            case Int128 number:
                return PartOf(number, random);
            case DateTimeOffset moment:
                return moment;
            case Guid guid:
                return guid;
            case byte[] bytes:
                return random.Next(2) == 0 ? (KvKeyPart)bytes : new ReadOnlyMemory<byte>(bytes);
            case string text:
                return text;
            default:
                return KvKeyPart.Null;
        }
    }

    // By any type that has the number.
    private static KvKeyPart PartOf(Int128 number, Random random) => random.Next(4) switch
    {
        0 when number >= int.MinValue && number <= int.MaxValue => (int)number,
        1 when number >= 0 && number <= uint.MaxValue => (uint)number,
        2 when number >= 0 => (ulong)number,
        _ when number <= long.MaxValue => (long)number,
        _ => (ulong)number,
    };

    private static int Compare(object?[] left, object?[] right)
    {
        foreach (var (one, other) in left.Zip(right))
        {
            if (Compare(one, other) is not 0 and var order)
                return order;
        }
        return left.Length.CompareTo(right.Length);
    }

    // The order that a reader expects, from the values and not from parts.
    private static int Compare(object? left, object? right) => (left, right) switch
    {
        (bool one, bool other) => one.CompareTo(other),
        (Int128 one, Int128 other) => one.CompareTo(other),
        (DateTimeOffset one, DateTimeOffset other) => one.CompareTo(other),
        (Guid one, Guid other) => Math.Sign(one.CompareTo(other)),
        (byte[] one, byte[] other) => Math.Sign(one.AsSpan().SequenceCompareTo(other)),
        (string one, string other) => Math.Sign(CodePoints(one).AsSpan().SequenceCompareTo(CodePoints(other))),
        _ => KindOf(left).CompareTo(KindOf(right)),
    };

    private static int[] CodePoints(string text) => [.. text.EnumerateRunes().Select(static rune => rune.Value)];

    private static int KindOf(object? part) => part switch
    {
        null => 0,
        bool => 1,
        Int128 => 2,
        DateTimeOffset => 3,
        Guid => 4,
        byte[] => 5,
        _ => 6,
    };
}
