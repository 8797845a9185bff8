using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv admin levels`: the levels in force, and raising them when all nodes have been upgraded.</summary>
internal static class LevelsCommand
{
    private static readonly Option<bool> Raise = new("--raise") { Description = "Raise each level to the highest that all nodes support. "
        + "It cannot be lowered again, so no node can go back to a program without it." };

    public static Command Create() => CliCommand.Create(
        "levels", "Show which levels of formats and calls are in force, and which of them each node supports and uses.", [Raise],
        async (arguments, output, stop) =>
        {
            var raise = arguments.GetValue(Raise);
            if (!raise)
                Interruption.NothingChanges();
            await using var client = Globals.ClientOf(arguments);
            var levels = raise ? await client.Admin.RaiseLevelsAsync(stop) : await client.Admin.GetLevelsAsync(stop);
            if (output.IsJson)
                output.Document(ToDocument(levels));
            else
                Print(output, levels, raise);
            return ExitCodes.Done;
        });

    private static void Print(Output output, LevelsStatus levels, bool raise)
    {
        if (levels.Format > levels.FormatBefore)
            output.Line(FormattableString.Invariant($"the format level was raised from {levels.FormatBefore} to {levels.Format}"));
        if (levels.Contract > levels.ContractBefore)
            output.Line(FormattableString.Invariant($"the contract level was raised from {levels.ContractBefore} to {levels.Contract}"));
        if (raise && !IsRaised(levels))
            output.Line("nothing to raise, because no node supports more");
        output.Line(FormattableString.Invariant($"in force: format level {levels.Format}, contract level {levels.Contract}"));
        foreach (var node in levels.Nodes)
            output.Line(Describe(node));
        var before = levels.Nodes.Where(node => node.FormatInUse < levels.Format || node.ContractInUse < levels.Contract)
            .Select(static node => FormattableString.Invariant($"{node.Node}")).ToList();
        if (before.Count > 0)
            output.Line($"not in use everywhere yet: restart "
                + $"{(before.Count == 1 ? $"node {before[0]}" : $"the nodes {string.Join(", ", before)}, one after the other")}");
    }

    private static string Describe(NodeLevelsStatus node)
    {
        if (node.Version.Length == 0)
            return FormattableString.Invariant($"node {node.Node}: not registered, so it is not known what it supports");
        var uses = node is { FormatInUse: { } format, ContractInUse: { } contract }
            ? FormattableString.Invariant($"format level {format}, contract level {contract}")
            : "not known";
        return string.Create(CultureInfo.InvariantCulture, $"node {node.Node} (version {node.Version}): supports format levels {Describe(node.FormatLevels)}, "
            + $"contract levels {Describe(node.ContractLevels)}; in use: {uses}");
    }

    private static string Describe(KvLevelRange? range) => range is null ? "not known" : FormattableString.Invariant($"{range.Min} to {range.Max}");

    private static bool IsRaised(LevelsStatus levels) => levels.Format > levels.FormatBefore || levels.Contract > levels.ContractBefore;

    /// <summary>The levels that a node supports; null if they are not known.</summary>
    public static Fields? ToDocument(KvLevelRange? range) => range is null ? null : new Fields { { "min", range.Min }, { "max", range.Max } };

    private static Fields ToDocument(LevelsStatus levels) => new Fields
    {
        { "format_level", levels.Format },
        { "contract_level", levels.Contract },
        { "raised", IsRaised(levels) },
        { "format_before", levels.FormatBefore },
        { "contract_before", levels.ContractBefore },
        { "nodes", levels.Nodes.Select(static node => new Fields
        {
            { "node", node.Node },
            { "version", node.Version.Length == 0 ? null : node.Version },
            { "format_levels", ToDocument(node.FormatLevels) },
            { "contract_levels", ToDocument(node.ContractLevels) },
            { "format_in_use", node.FormatInUse },
            { "contract_in_use", node.ContractInUse },
        }) },
    };
}
