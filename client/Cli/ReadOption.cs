using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>The option `--read` of commands that read keys.</summary>
internal static class ReadOption
{
    private static readonly string[] Names = [.. Enum.GetNames<KvReadMode>().Select(name => name.ToLowerInvariant())];

    /// <summary>To be listed by the command.</summary>
    public static readonly Option<string> Mode = Create();

    /// <summary>What was asked for.</summary>
    public static KvReadMode Of(ParseResult arguments) => Enum.Parse<KvReadMode>(arguments.GetRequiredValue(Mode), ignoreCase: true);

    private static Option<string> Create()
    {
        var option = new Option<string>("--read")
        {
            Description = "Who answers, and how new it is: leader, quorum, replica are linearizable; session has at least --seen; stale whatever a replica has.",
            HelpName = string.Join('|', Names),
            DefaultValueFactory = _ => Names[0],
        };
        option.AcceptOnlyFromAmong(Names);
        return option;
    }
}
