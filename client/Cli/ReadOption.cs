using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>The option `--read` of the commands that read keys.</summary>
internal static class ReadOption
{
    private static readonly string[] Names = [.. Enum.GetNames<KvReadMode>().Select(name => name.ToLowerInvariant())];

    /// <summary>The option; each such command lists it.</summary>
    public static readonly Option<string> Mode = Create();

    /// <summary>The mode that was chosen.</summary>
    public static KvReadMode Of(ParseResult arguments) => Enum.Parse<KvReadMode>(arguments.GetRequiredValue(Mode), ignoreCase: true);

    private static Option<string> Create()
    {
        var option = new Option<string>("--read")
        {
            Description = "Consistency of the read. Linearizable: leader, quorum (leader without its lease), replica (any replica). session: "
                + "any replica that has the change of --seen (get only). stale: any replica, at once.",
            HelpName = string.Join('|', Names),
            DefaultValueFactory = _ => Names[0],
        };
        option.AcceptOnlyFromAmong(Names);
        return option;
    }
}
