using System.Text;
using KvCluster.Cli;
using KvCluster.Cli.Files;

namespace KvCluster.Tests.Cli;

/// <summary>The notation of `kv txn`: what is sent is what was written, or nothing.</summary>
public sealed class TransactionTextTests
{
    [Fact]
    public void Parse_OfQuotedWords_KeepsWhatTheyContain()
    {
        var message = TransactionText.Parse(
            "value(\"a,b)\") = \"x)\"\r\nmember(s, \"m n\") = 1\n\nput k \"\u2028 \u00a0\\\"\\\\\"\r\nput plain\u00a0k v\u2028w\n").Message;
        Assert.Equal(("a,b)", "x)"), (message.Conditions[0].Key.ToStringUtf8(), message.Conditions[0].Value.Value.ToStringUtf8()));
        Assert.Equal(("s", "m n"), (message.Conditions[1].Key.ToStringUtf8(), message.Conditions[1].SetHas.ToStringUtf8()));
        Assert.Equal(
            [("k", "\u2028 \u00a0\"\\"), ("plain\u00a0k", "v\u2028w")],
            message.Success.Select(static put => (put.Put.Key.ToStringUtf8(), put.Put.Value.ToStringUtf8())));
    }

    /// <summary>The only fence of the page.</summary>
    [Fact]
    public void Parse_OfTheExampleOfThePage_IsATransaction()
    {
        var fences = House.House.Read("client/Cli/README.md").Split("\n```\n");
        Assert.Equal(3, fences.Length);
        var message = TransactionText.Parse(fences[1]).Message;
        Assert.Equal((2, 2, 1), (message.Conditions.Count, message.Success.Count, message.Failure.Count));
    }

    [Theory]
    [InlineData("value(\"a\", \"b\") = \"x\"\n\nget k", "line 1: it is no compare")]
    [InlineData("value(\"a\" = \"x\"\n\nget k", "line 1: it is no compare")]
    [InlineData("\nput k \"a\"5", "line 2: something follows a word in quotes without a space")]
    [InlineData("\nput k \"a\\tb\"", "line 2: a backslash in quotes")]
    [InlineData("\nput k \"a\\", "line 2: a backslash in quotes")]
    [InlineData("\nput k \"a", "line 2: a word in quotes does not end")]
    [InlineData("\nsrem s \"\"", "line 2: it is no operation")]
    [InlineData("\nput k v 1,5", "line 2: the lifetime '1,5' is not a number of seconds")]
    public void Parse_OfWhatCouldMeanSomethingElse_IsRefused(string text, string expected) => AssertRefused(expected, () => TransactionText.Parse(text));

    [Fact]
    public void Decode_OfBytesThatAreNotUtf8_NamesTheLine()
    {
        AssertRefused("line 2: it is not UTF-8", static () => TransactionText.Decode([.. "\nput k caf"u8, 0xE9]));
        AssertRefused("line 1: it is not UTF-8", static () => TransactionText.Decode([0xFF, 0xFE, .. "p\0u\0t\0"u8]));
        Assert.Equal("\nput k caf\u00e9\ufffd", TransactionText.Decode(Encoding.UTF8.GetBytes("\uFEFF\nput k caf\u00e9\ufffd")));
    }

    private static void AssertRefused(string expected, Action parse)
    {
        var failure = Assert.Throws<CliException>(parse);
        Assert.Equal(ExitCodes.Usage, failure.ExitCode);
        Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
        Assert.Contains("Nothing was applied.", failure.Message, StringComparison.Ordinal);
    }
}
