using System.Globalization;
using KvCluster.Client;
using NumberText = KvCluster.Storage.Encoding.NumberText;

namespace KvCluster.Tests.Client;

/// <summary>Numbers as values: in the form that nodes increment, and no other text is taken for one.</summary>
public sealed class KvValueTests
{
    [Theory]
    [InlineData(0L)]
    [InlineData(-1L)]
    [InlineData(17L)]
    [InlineData(long.MinValue)]
    [InlineData(long.MaxValue)]
    public void Number_IsItsDecimalText_AndIsReadBack(long number)
    {
        var value = KvValue.FromInt64(number);
        Assert.Equal(number.ToString(CultureInfo.InvariantCulture), value.ToUtf8String());
        Assert.Equal(number, value.ToInt64());
    }

    /// <summary>A library that read more or less than nodes do would not read what they have incremented, or increment what they refuse.</summary>
    [Theory]
    [InlineData("")]
    [InlineData("-")]
    [InlineData("+1")]
    [InlineData("--1")]
    [InlineData(" 1")]
    [InlineData("1 ")]
    [InlineData("1.0")]
    [InlineData("0x1")]
    [InlineData("one")]
    [InlineData("007")]
    [InlineData("-0")]
    [InlineData("9223372036854775807")]
    [InlineData("9223372036854775808")]
    [InlineData("-9223372036854775809")]
    [InlineData("000000000000000000001")]
    public void Text_IsANumber_IfItIsOneForANode(string text)
    {
        KvValue value = text;
        if (NumberText.TryRead(value.Span, out var number))
            Assert.Equal(number, value.ToInt64());
        else
            Assert.Throws<FormatException>(() => value.ToInt64());
    }
}
