using System.Text;
using KvCluster.Cli;

namespace KvCluster.Tests.Cli;

/// <summary>Stored bytes on a terminal. Escape sequences in a value went to it raw, and could change its title, its colours or its keys.</summary>
public sealed class TerminalTextTests
{
    [Theory]
    [InlineData("plain \u00e9 \U0001F600\twith\nlines", "plain \u00e9 \U0001F600\twith\nlines")]
    [InlineData("\u001b]0;owned\u0007", @"\x1b]0;owned\x07")]
    [InlineData("over\rwritten\u007f\u009b31m", @"over\x0dwritten\x7f\xc2\x9b31m")]
    [InlineData("\u202Ereversed", @"\xe2\x80\xaereversed")]
    [InlineData("", "")]
    public void ForTerminal_ShowsTextAndNothingThatATerminalObeys(string stored, string shown) =>
        Assert.Equal(shown, Encoding.UTF8.GetString(Text.ForTerminal(Encoding.UTF8.GetBytes(stored))));

    [Fact]
    public void ForTerminal_OfBytesThatAreNotUtf8_ShowsThem() =>
        Assert.Equal(@"a\xff\xe9b", Encoding.UTF8.GetString(Text.ForTerminal([.. "a"u8, 0xFF, 0xE9, .. "b"u8])));
}
