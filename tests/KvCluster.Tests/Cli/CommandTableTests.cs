using KvCluster.Cli.Commands;

namespace KvCluster.Tests.Cli;

/// <summary>Only the command that the arguments name is created, so each must be found by its own name.</summary>
public sealed class CommandTableTests
{
    [Fact]
    public void For_EachName_HasThatCommandOnly() =>
        Assert.All(CommandTable.Names, static name => Assert.Equal([name], CommandTable.For([name, "key"]).Select(static command => command.Name)));

    [Theory]
    [InlineData]
    [InlineData("--help")]
    [InlineData("--output", "json", "get", "key")]
    [InlineData("frob", "get")]
    public void For_OtherArguments_HasAllCommands(params string[] arguments) =>
        Assert.Equal(CommandTable.Names, CommandTable.For(arguments).Select(static command => command.Name));
}
