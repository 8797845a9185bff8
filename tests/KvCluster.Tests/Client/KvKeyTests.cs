using System.Text;
using KvCluster.Client;

namespace KvCluster.Tests.Client;

/// <summary>Keys as text and bytes: nothing is replaced on the way, equal bytes are equal keys, and the order is that of the bytes.</summary>
public sealed class KvKeyTests
{
    [Fact]
    public void Text_IsItsUtf8_AndIsReadBack()
    {
        KvKey key = "päö/😀";
        Assert.Equal(Encoding.UTF8.GetBytes("päö/😀"), key.ToArray());
        Assert.Equal("päö/😀", key.ToUtf8String());
        Assert.Equal((key.Memory.Length, false), (key.Length, key.IsEmpty));
    }

    /// <summary>Two texts with different halves of surrogate pairs became the same key, that of U+FFFD.</summary>
    [Fact]
    public void Text_WithHalfOfASurrogatePair_IsRefused()
    {
        Assert.Throws<ArgumentException>(() => (KvKey)"\ud800");
        Assert.Throws<ArgumentException>(() => (KvValue)"a\udc00");
        Assert.Throws<ArgumentException>(() => KvKey.Of("\ud800"));
    }

    [Fact]
    public void Text_ThatIsNull_IsRefusedByName()
    {
        Assert.Throws<ArgumentNullException>(() => (KvKey)(string)null!);
        Assert.Throws<ArgumentNullException>(() => (KvValue)(string)null!);
    }

    [Fact]
    public void Bytes_ThatAreNotUtf8_AreNoText()
    {
        var key = KeyOf(0xff);
        Assert.Throws<FormatException>(() => key.ToUtf8String());
        KvValue value = new byte[] { 0xc3 };
        Assert.Throws<FormatException>(() => value.ToUtf8String());
    }

    [Fact]
    public void Bytes_AreNotCopied()
    {
        var bytes = new byte[] { 1, 2 };
        KvKey key = bytes;
        KvKey same = new ReadOnlyMemory<byte>(bytes);
        ReadOnlyMemory<byte> back = key;
        bytes[0] = 3;
        Assert.Equal(3, key.Span[0]);
        Assert.Equal(3, same.Span[0]);
        Assert.Equal(3, back.Span[0]);
    }

    [Fact]
    public void ArrayThatIsNull_AndDefault_AreEmpty()
    {
        KvKey none = (byte[]?)null;
        Assert.True(none.IsEmpty);
        Assert.True(default(KvKey).IsEmpty);
        Assert.True(default(KvValue).IsEmpty);
        Assert.Equal("", default(KvKey).ToUtf8String());
    }

    [Fact]
    public void Equality_IsThatOfTheBytes()
    {
        KvKey key = "key";
        KvKey same = "key"u8.ToArray();
        KvKey other = "kez";
        Assert.True(key == same && key != other && key.Equals((object)same) && !key.Equals((object)"key"));
        Assert.Equal(key.GetHashCode(), same.GetHashCode());
        Assert.Equal(2, new HashSet<KvKey> { key, same, other }.Count);
        KvValue value = "value";
        KvValue equal = "value"u8.ToArray();
        Assert.True(value == equal && value != default && value.GetHashCode() == equal.GetHashCode());
    }

    [Fact]
    public void Order_IsThatOfTheBytesAsUnsignedNumbers()
    {
        KvKey[] ascending = [default, "a", "a\0", "a\u0001", "aa", "b", KeyOf(0x80), KeyOf(0xff, 0), KeyOf(0xff, 0xff)];
        Assert.Equal(ascending, ascending.OrderDescending().Order());
        Assert.Equal(ascending.Length, ascending.Distinct().Count());
    }

    [Fact]
    public void PrefixEnd_IsTheFirstKeyBehindThePrefix()
    {
        KvKey prefix = "a";
        Assert.Equal("b", prefix.PrefixEnd.ToUtf8String());
        Assert.Equal("b", KeyOf((byte)'a', 0xff, 0xff).PrefixEnd.ToUtf8String());
        Assert.True(KeyOf(0xff).PrefixEnd.IsEmpty);
        Assert.True(default(KvKey).PrefixEnd.IsEmpty);
    }

    [Fact]
    public void Text_ForPeople_HasNothingThatATerminalObeys() =>
        Assert.Equal(@"ä😀\x1b[2J\x0a\xe2\x80\xae\xff", KeyOf([.. "ä😀\u001b[2J\n\u202e"u8, 0xff]).ToString());

    private static KvKey KeyOf(params byte[] bytes) => bytes;
}
