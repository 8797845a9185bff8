using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>`kv help`: what there is, and by examples how it is used.</summary>
internal static class HelpCommand
{
    private static readonly Argument<string?> Topic = TopicArgument();

    public static Command Create() => CliCommand.CreateReader(
        "help", "Show what there is, or examples of a topic or a command.", [Topic], (arguments, output, _) =>
        {
            output.Lines(arguments.GetValue(Topic) is { } topic ? HelpTopics.Of(topic) : HelpTopics.Overview);
            return Task.FromResult(ExitCodes.Done);
        });

    private static Argument<string?> TopicArgument()
    {
        var topic = new Argument<string?>("TOPIC") { Description = "A topic or a command.", Arity = ArgumentArity.ZeroOrOne };
        topic.CompletionSources.Add(static _ => HelpTopics.Names.Concat(CommandTable.Names));
        return topic;
    }
}
