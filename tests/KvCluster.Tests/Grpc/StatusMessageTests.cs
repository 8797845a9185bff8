using Grpc.Shared;

namespace KvCluster.Tests.Grpc;

/// <summary>The text of a status on the wire. It was as long as whatever it repeated, three times that when encoded, in a header.</summary>
public sealed class StatusMessageTests
{
    [Theory]
    [InlineData("a")]
    [InlineData("\u0001")]
    [InlineData("\u00e4")]
    [InlineData("\u20ac")]
    [InlineData("\U0001F600")]
    public void Encode_OfALongText_IsCutBetweenCharacters(string character)
    {
        var encoded = StatusMessage.Encode(string.Concat(Enumerable.Repeat(character, 10_000)));
        Assert.InRange(encoded.Length, 0, 3 * StatusMessage.BytesMax);
        var decoded = StatusMessage.Decode(encoded);
        var kept = (StatusMessage.BytesMax - 3) / System.Text.Encoding.UTF8.GetByteCount(character);
        Assert.Equal(string.Concat(Enumerable.Repeat(character, kept)) + "...", decoded);
    }

    [Fact]
    public void Encode_OfTheLongestText_KeepsAllOfIt()
    {
        var text = new string('x', StatusMessage.BytesMax);
        Assert.Equal(text, StatusMessage.Encode(text));
        Assert.Equal("100%25 gr%C3%BCn", StatusMessage.Encode("100% gr\u00fcn"));
    }

    [Fact]
    public void Encode_OfAHugeText_AllocatesLittle()
    {
        var text = new string('\u0001', 16 << 20);
        var before = GC.GetAllocatedBytesForCurrentThread();
        StatusMessage.Encode(text);
        Assert.InRange(GC.GetAllocatedBytesForCurrentThread() - before, 0, 256 << 10);
    }
}
