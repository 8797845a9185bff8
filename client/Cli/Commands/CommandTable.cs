using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>All commands, in the order of the help.</summary>
internal static class CommandTable
{
    private static readonly (string Name, Func<Command> Create)[] All =
    [
        ("get", KeyCommands.Get), ("put", KeyCommands.Put), ("delete", KeyCommands.Delete), ("scan", ScanCommands.Scan), ("count", ScanCommands.Count),
        ("load", LoadCommand.Create), ("verify", VerifyCommand.Create), ("bench", BenchCommand.Create), ("status", StatusCommand.Create),
        ("doctor", DoctorCommand.Create), ("admin", AdminCommand.Create),
    ];

    /// <summary>Those that the arguments can mean: to create all of them takes longer than a call. All if the first argument names none.</summary>
    public static IEnumerable<Command> For(string[] arguments) =>
        All.Where(one => one.Name == arguments.FirstOrDefault()).DefaultIfEmpty().First() is { Create: { } create } ? [create()] : All.Select(one => one.Create());

    /// <summary>Their names.</summary>
    public static IEnumerable<string> Names => All.Select(one => one.Name);
}
