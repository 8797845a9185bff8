using System.Text;
using KvCluster.Cli.Selftest;

namespace KvCluster.Tests.Cli;

/// <summary>Scans of `kv selftest` are judged rightly, and its keys beside a border of shards are on the two sides of it.</summary>
public sealed class SelftestScanTests
{
    [Theory]
    [InlineData("b d f", false, 0)]
    [InlineData("b c d e f g", false, 0)]
    [InlineData("f d b", true, 0)]
    [InlineData("a b c d", false, 4)]
    [InlineData("f e", true, 2)]
    [InlineData("a", false, 1)]
    public void Scan_ThatReturnedEveryStableKeyUpToItsLimit_IsRight(string keys, bool reverse, int limit) => Scan(keys, reverse, limit).Judge();

    [Theory]
    [InlineData("b f", false, 0, "1 are missing, the first 0xd")]
    [InlineData("", false, 0, "3 are missing")]
    [InlineData("f b", true, 0, "1 are missing, the first 0xd")]
    [InlineData("b d d f", false, 0, "returned twice")]
    [InlineData("b f d", false, 0, "came after")]
    [InlineData("b d f", true, 0, "came after")]
    [InlineData("b c d f", false, 3, "at most 3")]
    [InlineData("b e", false, 2, "1 are missing, the first 0xd")]
    [InlineData("e d", true, 2, "1 are missing, the first 0xf")]
    [InlineData("b d", false, 3, "1 are missing, the first 0xf")]
    public void Scan_WithAMistake_IsFound(string keys, bool reverse, int limit, string told) =>
        Assert.Contains(told, Assert.Throws<SelftestFailure>(Scan(keys, reverse, limit).Judge).Message, StringComparison.Ordinal);

    [Theory]
    [InlineData("packages/")]
    [InlineData("b\0")]
    [InlineData("b\0\0")]
    [InlineData("\u0001")]
    public void Border_OfTwoShards_HasAPrefixOnEachSide(string text)
    {
        var border = Encoding.UTF8.GetBytes(text);
        var around = ShardBorder.Around(border, "name"u8)!;
        byte[] last = [.. around.First, 0xFF];
        Assert.True(last.AsSpan().SequenceCompareTo(border) < 0);
        Assert.True(around.Second.AsSpan().SequenceCompareTo(border) >= 0);
        Assert.True(around.End.AsSpan().SequenceCompareTo(around.Second) > 0);
        Assert.EndsWith("name", Encoding.UTF8.GetString(around.First), StringComparison.Ordinal);
        Assert.EndsWith("name", Encoding.UTF8.GetString(around.Second), StringComparison.Ordinal);
    }

    [Fact]
    public void Border_WithoutRoomForNames_IsNotUsed()
    {
        Assert.Null(ShardBorder.Around([], "name"u8));
        Assert.Null(ShardBorder.Around([0], "name"u8));
        Assert.Null(ShardBorder.Around(Enumerable.Repeat((byte)'b', KvLimits.KeyBytesMax).ToArray(), "name"u8));
    }

    private static ScanResult Scan(string keys, bool reverse, int limit) =>
        new("a scan", ["b", "d", "f"], keys.Split(' ', StringSplitOptions.RemoveEmptyEntries), reverse, limit);
}
