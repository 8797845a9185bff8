using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>Texts from nodes and callers, as they are shown on a terminal.</summary>
public sealed class OneLineTests
{
    [Theory]
    [InlineData("an operator asked for it", "an operator asked for it")]
    [InlineData("größer, 大きい, \U0001F600", "größer, 大きい, \U0001F600")]
    [InlineData("a\nb\r\tc", "a\uFFFDb\uFFFD\uFFFDc")]
    [InlineData("\u001b[2J\u009b\u007f\0", "\uFFFD[2J\uFFFD\uFFFD\uFFFD")]
    [InlineData("\u2028\u202e\u2066", "\uFFFD\uFFFD\uFFFD")]
    public void Of_ReplacesControlCharacters(string text, string shown)
    {
        Assert.Equal(shown, OneLine.Of(text));
        Assert.Equal(shown == text, OneLine.Is(text));
    }

    [Fact]
    public void Of_ATable_KeepsItsLines() => Assert.Equal("a\nb\uFFFD\n", OneLine.Of("a\nb\u001b\n", keepsLineFeeds: true));

    /// <summary>Error lines were printed unchanged, with every escape sequence in them.</summary>
    [ToolFact("bash")]
    public async Task Kv_FailingWithTextThatHasEscapes_PrintsNone()
    {
        var (_, _, error) = await KvProcess.RunInShellAsync("$KV $'frob\\e[2J'");
        Assert.Contains("frob", error, StringComparison.Ordinal);
        Assert.DoesNotContain('\u001b', error);
    }
}
