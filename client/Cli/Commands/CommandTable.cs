using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>All commands, in the order in which the help lists them.</summary>
internal static class CommandTable
{
    private static readonly (string Name, Func<Command> Create)[] All =
    [
        ("get", KeyCommands.Get), ("put", KeyCommands.Put), ("delete", KeyCommands.Delete), ("rm", ChangeCommands.Remove), ("incr", ChangeCommands.Increment),
        ("touch", ChangeCommands.Touch),
        ("txn", TransactCommand.Create), ("scan", ScanCommands.Scan), ("count", ScanCommands.Count), ("watch", WatchCommand.Create),
        ("set", SetCommands.Create), ("session", SessionCommands.Create),
        ("load", LoadCommand.Create), ("verify", VerifyCommand.Create), ("bench", BenchCommand.Create), ("status", StatusCommand.Create),
        ("doctor", DoctorCommand.Create), ("selftest", SelftestCommand.Create), ("admin", AdminCommand.Create),
    ];

    /// <summary>The command that the first argument names, because creating all of them takes longer than a call; all commands if it names none.</summary>
    public static IEnumerable<Command> For(string[] arguments) =>
        All.Where(one => one.Name == arguments.FirstOrDefault()).DefaultIfEmpty().First() is { Create: { } create } ? [create()]
            : All.Select(one => one.Create());

    /// <summary>Their names.</summary>
    public static IEnumerable<string> Names => All.Select(one => one.Name);
}
