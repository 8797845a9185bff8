namespace KvCluster.Tests.Primitives;

/// <summary>The order of etags, which is the order of their bytes and of their text.</summary>
public sealed class EtagTests
{
    private static readonly Etag[] Ascending =
    [
        Etag.None, new(0, 1), new(0, ulong.MaxValue), new(1, 0), new(1, 1), new(1, 1ul << 63), new(2, 0), new(1ul << 63, 5), new(ulong.MaxValue, 0), Etag.MaxValue,
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
                Assert.Equal((order < 0, order <= 0, order > 0, order >= 0, order == 0), (left < right, left <= right, left > right, left >= right, left == right));
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

    private static byte[] Bytes(Etag etag)
    {
        var bytes = new byte[Etag.ByteLength];
        etag.WriteTo(bytes);
        return bytes;
    }
}
