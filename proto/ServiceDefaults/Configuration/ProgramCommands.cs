using System.Collections;
using System.CommandLine;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// A program's commands: each has a table of settings and something to do with them. From arguments to an exit code; every expected failure is a line
/// on standard error, and of mistakes in what was set each has its own. Used by a program's one thread.
/// </summary>
/// <param name="program">Its name, which begins lines on standard error.</param>
/// <param name="description">For its help.</param>
/// <param name="known">The settings of all its commands: file and environment may say something of each.</param>
internal sealed class ProgramCommands(string program, string description, IReadOnlyList<Setting> known)
{
    /// <summary>Of commands that are over soon.</summary>
    private static readonly TimeSpan StopLimit = TimeSpan.FromSeconds(2);

    /// <summary>Between a stop's own limit and the end of the process all the same.</summary>
    private static readonly TimeSpan StopReserve = TimeSpan.FromSeconds(1);

    private readonly RootCommand _root = new(description);
    private readonly SettingFlags _flags = new();
    private readonly Dictionary<Command, (IReadOnlyList<Setting> Table, Action<Settings> Check)> _tables = [];
    private Settings _settings = new();

    /// <summary>Adds a command.</summary>
    /// <param name="check">Finds what settings say together that cannot be.</param>
    /// <param name="run">Does it with settings that are right; its token is cancelled by Ctrl-C and SIGTERM.</param>
    public void Add(string name, string does, IReadOnlyList<Setting> table, Action<Settings> check, Func<Settings, CancellationToken, Task<int>> run) =>
        AddTo(_root, name, does, table, check, run);

    /// <summary>Adds a command without settings.</summary>
    public void Add(Command command) => _root.Subcommands.Add(command);

    /// <summary>Adds <c>config show</c>, which prints what holds for a command and where each value is from.</summary>
    public void AddConfigShow(string command, IReadOnlyList<Setting> table, Action<Settings> check)
    {
        var config = new Command("config", "Looks at settings.");
        _root.Subcommands.Add(config);
        AddTo(config, "show", $"Prints every setting of '{command}', its value and where that is from: flag, environment, file or default.", table, check, (settings, _) =>
        {
            foreach (var line in SettingsText.Lines(table, settings))
                Console.WriteLine(line);
            return Task.FromResult(ExitCodes.Done);
        });
    }

    /// <summary>Adds <c>health</c>, which asks a running program on this machine through its admin port.</summary>
    public void AddHealth() => Add("health", "Asks the one that runs on this machine whether it is ready: exit code 0 or 1, and a line why.", [CommonSettings.Config, CommonSettings.Admin],
        static settings =>
        {
            if (!settings.IsGiven(CommonSettings.Admin))
                settings.AddMistake(CommonSettings.Admin, "is missing: the URL of the admin port to ask.");
        },
        static async (settings, stop) =>
        {
            var (isReady, line) = await Admin.HealthQuestion.AskAsync(new Uri(settings.Get(CommonSettings.Admin)!), stop).ConfigureAwait(false);
            Console.WriteLine(line);
            return isReady ? ExitCodes.Done : ExitCodes.NotReady;
        });

    /// <summary>Runs what arguments ask for.</summary>
    /// <param name="exitCodeOf">The exit code of a failure; its message is told.</param>
    /// <returns>The exit code.</returns>
    public async Task<int> InvokeAsync(string[] arguments, Func<Exception, int> exitCodeOf)
    {
        var parsed = _root.Parse(arguments);
        IReadOnlyList<string> mistakes = [.. parsed.Errors.Select(error => $"{error.Message} (--help lists the options)")];
        var stopLimit = StopLimit;
        if (_tables.TryGetValue(parsed.CommandResult.Command, out var command) && (parsed.Errors.Count > 0 || parsed.Action == parsed.CommandResult.Command.Action))
        {
            _settings = SettingsReader.Read(command.Table, known, new SettingSources(_flags.In(parsed), Variables()));
            if (_settings.IsRead)
                command.Check(_settings);
            mistakes = [.. mistakes, .. _settings.Mistakes];
            if (command.Table.Contains(CommonSettings.StopGrace))
                stopLimit = StopTimeOf(_settings) + StopReserve;
        }
        if (mistakes.Count > 0)
            return Tell(mistakes, ExitCodes.Usage);
        try
        {
            return await parsed.InvokeAsync(new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = stopLimit }).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            return ExitCodes.Done;
        }
        catch (Exception failure)
        {
            var code = exitCodeOf(failure);
            // Of a mistake of the program, where it is says more than what it was.
            return Tell([code == ExitCodes.Internal ? failure.ToString() : failure.Message], code);
        }
    }

    /// <summary>How long a stop may take, so that the process has ended within the grace.</summary>
    public static TimeSpan StopTimeOf(Settings settings) => TimeSpan.FromSeconds(settings.Get(CommonSettings.StopGrace)) - 1.5 * StopReserve;

    /// <summary>Tells people something on standard error.</summary>
    /// <returns>The exit code.</returns>
    public int Tell(IEnumerable<string> lines, int exitCode)
    {
        foreach (var line in lines)
            Console.Error.WriteLine($"{program}: {line.ReplaceLineEndings(" ")}");
        return exitCode;
    }

    private void AddTo(Command parent, string name, string does, IReadOnlyList<Setting> table, Action<Settings> check, Func<Settings, CancellationToken, Task<int>> run)
    {
        var command = _flags.CommandOf(name, does, table);
        command.SetAction((_, stop) => run(_settings, stop));
        _tables[command] = (table, check);
        parent.Subcommands.Add(command);
    }

    private static Dictionary<string, string> Variables() => Environment.GetEnvironmentVariables().Cast<DictionaryEntry>().ToDictionary(one => (string)one.Key, one => (string?)one.Value ?? "");
}
