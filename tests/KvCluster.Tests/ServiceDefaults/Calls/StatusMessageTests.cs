using KvCluster.ServiceDefaults.Calls;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>
/// The text of a status on the wire. It used to be as long as whatever it repeated. Then it was cut before encoding, which made up to 12 KiB of 4,
/// although clients accept only 8 KiB of headers.
/// </summary>
public sealed class StatusMessageTests
{
    [Theory]
    [InlineData("a", 1)]
    [InlineData("%", 3)]
    [InlineData("\u0001", 3)]
    [InlineData("\u00e4", 6)]
    [InlineData("\u20ac", 9)]
    [InlineData("\U0001F600", 12)]
    public void Encode_LongText_IsCutBetweenCharacters(string character, int encodedBytes)
    {
        var encoded = StatusMessage.Encode(string.Concat(Enumerable.Repeat(character, 10_000)));
        Assert.InRange(encoded.Length, 0, StatusMessage.BytesMax);
        var decoded = Uri.UnescapeDataString(encoded);
        var kept = (StatusMessage.BytesMax - 3) / encodedBytes;
        Assert.Equal(string.Concat(Enumerable.Repeat(character, kept)) + "...", decoded);
    }

    [Fact]
    public void Encode_LongestText_IsKeptWhole()
    {
        var text = new string('x', StatusMessage.BytesMax);
        Assert.Equal(text, StatusMessage.Encode(text));
        Assert.Equal(text[..^3] + "...", StatusMessage.Encode(text + 'x'));
        Assert.Equal(string.Concat(Enumerable.Repeat("%25", StatusMessage.BytesMax / 3)), StatusMessage.Encode(new string('%', StatusMessage.BytesMax / 3)));
        Assert.EndsWith("%25...", StatusMessage.Encode(new string('%', (StatusMessage.BytesMax / 3) + 1)), StringComparison.Ordinal);
        Assert.Equal("100%25 gr%C3%BCn", StatusMessage.Encode("100% gr\u00fcn"));
        // Half of a surrogate pair.
        Assert.Equal("%EF%BF%BDa", StatusMessage.Encode("\ud83da"));
    }

    [Fact]
    public void Encode_HugeText_AllocatesLittle()
    {
        var text = new string('\u0001', 16 << 20);
        Assert.InRange(Allocations.Of(() => StatusMessage.Encode(text)), 0, 256 << 10);
    }
}
