using System.Text;
using KvCluster.Cli;

namespace KvCluster.Tests.Cli;

/// <summary>How messages and lines show keys.</summary>
public sealed class TextTests
{
    [Fact]
    public void ForPeople_ShortBytes_ShowsAllOfThem()
    {
        Assert.Equal("'caf\u00e9'", Text.ForPeople("caf\u00e9"u8));
        Assert.Equal("0xFF00", Text.ForPeople([0xFF, 0]));
    }

    [Theory]
    [InlineData("plain \u00e9 \U0001F600", null, null)]
    [InlineData("", null, null)]
    [InlineData("\"quoted\" $5 'x' \\", null, null)]
    [InlineData("a\tb", @"$'a\tb'", @"$'a\tb'")]
    [InlineData("it's\na\\\r", @"$'it\'s\na\\\r'", @"$'it\'s\na\\\r'")]
    [InlineData("$'a'", @"$'$\'a\''", @"$'$\'a\''")]
    [InlineData("\u001b[31m", null, @"$'\x1b[31m'")]
    [InlineData("\u202Eb", null, @"$'\xe2\x80\xaeb'")]
    public void Field_OfALine_IsQuotedOnlyIfTheLineOrTheTerminalCouldNotCarryIt(string stored, string? inALine, string? onATerminal)
    {
        var bytes = Encoding.UTF8.GetBytes(stored);
        Assert.Equal((inALine is null, onATerminal is null), (Text.IsPlain(bytes, isTerminal: false), Text.IsPlain(bytes, isTerminal: true)));
        if (onATerminal is not null)
            Assert.Equal(onATerminal, Encoding.UTF8.GetString(Text.Quoted(bytes)));
    }

    [Fact]
    public void Quoted_OfAnyBytes_IsReadBackAsTheyWere()
    {
        var random = new Random(3);
        for (var round = 0; round < 1_000; round++)
        {
            var bytes = new byte[random.Next(40)];
            random.NextBytes(bytes);
            Assert.True(Text.TryUnquote(Text.Quoted(bytes).ToArray(), out var read));
            Assert.Equal(bytes, read.ToArray());
        }
    }

    [Theory]
    [InlineData("plain", "plain")]
    [InlineData("$'", null)]
    [InlineData("$'a", null)]
    [InlineData("$'a'b'", null)]
    [InlineData(@"$'a\'", null)]
    [InlineData(@"$'\q'", null)]
    [InlineData(@"$'\x1'", null)]
    [InlineData(@"$'\x1G'", null)]
    [InlineData(@"$'\x41'", "A")]
    public void TryUnquote_OfBrokenQuotes_Refuses(string text, string? meant)
    {
        Assert.Equal(meant is not null, Text.TryUnquote(Encoding.UTF8.GetBytes(text), out var bytes));
        if (meant is not null)
            Assert.Equal(meant, Encoding.UTF8.GetString(bytes.Span));
    }

    [Fact]
    public void Field_OfBytesThatAreNotUtf8_IsQuotedOnATerminal()
    {
        byte[] bytes = [.. "a"u8, 0xFF, 0xE9];
        Assert.True(Text.IsPlain(bytes, isTerminal: false));
        Assert.False(Text.IsPlain(bytes, isTerminal: true));
        Assert.Equal(@"$'a\xff\xe9'", Encoding.UTF8.GetString(Text.Quoted(bytes)));
    }

    [Fact]
    public void ForPeople_LongBytes_ShowsTheBeginningAndTheLength()
    {
        Assert.Equal($"'{new string('k', 200)}...' (3000 bytes)", Text.ForPeople(Encoding.UTF8.GetBytes(new string('k', 3000))));
        Assert.Equal($"0x{string.Concat(Enumerable.Repeat("FF", 100))}... (101 bytes)", Text.ForPeople(Enumerable.Repeat((byte)0xFF, 101).ToArray()));
    }
}
