using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>All commands, in the order in which the help lists them.</summary>
internal static class CommandTable
{
    private static readonly (string Name, string? Alias, Func<Command> Create)[] All =
    [
        ("get", null, KeyCommands.Get), ("put", null, KeyCommands.Put), ("delete", "del", KeyCommands.Delete), ("rm", null, ChangeCommands.Remove),
        ("incr", null, ChangeCommands.Increment), ("touch", null, ChangeCommands.Touch), ("txn", null, TransactCommand.Create),
        ("scan", "ls", ScanCommands.Scan), ("count", null, ScanCommands.Count), ("watch", null, WatchCommand.Create),
        ("set", null, SetCommands.Create), ("session", null, SessionCommands.Create),
        ("export", null, ExportCommand.Create), ("import", "load", ImportCommand.Create), ("verify", null, VerifyCommand.Create),
        ("bench", null, BenchCommand.Create),
        ("status", null, StatusCommand.Create), ("top", null, TopCommand.Create), ("doctor", null, DoctorCommand.Create),
        ("selftest", null, SelftestCommand.Create), ("admin", null, AdminCommand.Create), ("shell", null, ShellCommand.Create),
        ("context", null, ContextCommands.Create), ("completion", null, CompletionCommands.Completion), ("help", null, HelpCommand.Create),
    ];

    /// <summary>The command that the first argument names, because creating all of them takes longer than a call; all commands if it names none.</summary>
    public static IEnumerable<Command> For(string[] arguments)
    {
        if (arguments is [CompletionCommands.CompleteName, ..])
            return [CompletionCommands.Complete()];
        var named = arguments.Length == 0 ? -1 : Array.FindIndex(All, one => one.Name == arguments[0] || one.Alias == arguments[0]);
        return named >= 0 ? [Created(All[named])] : All.Select(Created);
    }

    /// <summary>Their names.</summary>
    public static IEnumerable<string> Names => All.Select(static one => one.Name);

    /// <summary>Other names of some of them.</summary>
    public static IEnumerable<string> Aliases => All.Select(static one => one.Alias).OfType<string>();

    private static Command Created((string Name, string? Alias, Func<Command> Create) one)
    {
        var command = one.Create();
        if (one.Alias is not null)
            command.Aliases.Add(one.Alias);
        return command;
    }
}
