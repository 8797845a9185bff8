using System.Globalization;

namespace KvCluster.Tests.Primitives;

/// <summary>The text of a replica's id.</summary>
public sealed class ReplicaIdTests
{
    /// <summary>
    /// Log messages had ids in hexadecimal, with and without leading zeros, and the values beside them in decimal, so no search found all lines about a
    /// replica.
    /// </summary>
    [Fact]
    public void Text_WithoutAFormat_HasSixteenHexadecimalDigits()
    {
        var replica = new ReplicaId(0x0123_4567_89AB_CDEF);

        Assert.Equal("0123456789abcdef", replica.ToString());
        Assert.Equal("0123456789abcdef", $"{replica}");
        Assert.Equal("0123456789abcdef", Convert.ToString((object)replica, CultureInfo.InvariantCulture));
        Assert.Equal("123456789abcdef", $"{replica:x}");
    }
}
