using System.Collections;
using System.CommandLine;
using KvCluster.ServiceDefaults.Programs;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>
/// A program's commands, each with a table of settings and a function that runs it. Turns arguments into an exit code. Every expected failure is one line on
/// standard error, and each mistake in the settings has its own line. Used by a program's only thread.
/// </summary>
/// <param name="program">Its name, with which lines on standard error begin.</param>
/// <param name="description">The text for its help.</param>
/// <param name="known">The settings of all its commands, because file and environment may set any of them.</param>
internal sealed class ProgramCommands(string program, string description, IReadOnlyList<Setting> known)
{
    /// <summary>For commands that end soon.</summary>
    private static readonly TimeSpan StopLimit = TimeSpan.FromSeconds(2);

    /// <summary>The time between the limit of a stop and the forced end of the process.</summary>
    private static readonly TimeSpan StopReserve = TimeSpan.FromSeconds(1);

    private readonly RootCommand _root = new(description);
    private readonly SettingFlags _flags = new();
    private readonly Dictionary<Command, (IReadOnlyList<Setting> Table, Action<Settings> Check)> _tables = [];
    private Settings _settings = new();

    /// <summary>Adds a command.</summary>
    /// <param name="check">Finds invalid combinations of settings.</param>
    /// <param name="run">Runs the command with valid settings. Its token is cancelled by Ctrl-C and SIGTERM.</param>
    public void Add(string name, string does, IReadOnlyList<Setting> table, Action<Settings> check, Func<Settings, CancellationToken, Task<int>> run) =>
        AddTo(_root, name, does, table, check, run);

    /// <summary>Adds a command without settings.</summary>
    public void Add(Command command) => _root.Subcommands.Add(command);

    /// <summary>Adds <c>config show</c>, which prints the settings of a command and where each value comes from.</summary>
    public void AddConfigShow(string command, IReadOnlyList<Setting> table, Action<Settings> check)
    {
        var config = new Command("config", "Inspects settings.");
        _root.Subcommands.Add(config);
        AddTo(
            config, "show", $"Prints every setting of '{command}' with its value and its source: flag, environment, file or default.", table, check,
            (settings, _) =>
            {
                foreach (var line in SettingsText.Lines(table, settings))
                    Console.WriteLine(line);
                return Task.FromResult(ExitCodes.Done);
            });
    }

    /// <summary>Adds <c>health</c>, which asks a running program on this machine through its admin port.</summary>
    public void AddHealth() => Add(
        "health", "Asks the process on this machine whether it is ready. Prints one line and exits with 0 or 1.", [CommonSettings.Config, CommonSettings.Admin],
        static settings =>
        {
            if (!settings.IsGiven(CommonSettings.Admin))
                settings.AddMistake(CommonSettings.Admin, "is missing; set it to the URL of the admin port to ask.");
        },
        static async (settings, stop) =>
        {
            var (isReady, line) = await Admin.HealthQuestion.AskAsync(new Uri(settings.Get(CommonSettings.Admin)!), stop).ConfigureAwait(false);
            Console.WriteLine(line);
            return isReady ? ExitCodes.Done : ExitCodes.NotReady;
        });

    /// <summary>Runs the command that the arguments name.</summary>
    /// <param name="exitCodeOf">Returns the exit code for a failure, whose message is printed.</param>
    /// <returns>The exit code.</returns>
    public async Task<int> InvokeAsync(string[] arguments, Func<Exception, int> exitCodeOf)
    {
        var parsed = _root.Parse(arguments);
        IReadOnlyList<string> mistakes = [.. parsed.Errors.Select(error => $"{WithQuestion(parsed, error.Message)} (--help lists the options)")];
        var stopLimit = StopLimit;
        if (_tables.TryGetValue(parsed.CommandResult.Command, out var command)
            && (parsed.Errors.Count > 0 || parsed.Action == parsed.CommandResult.Command.Action))
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
            return await parsed.InvokeAsync(
                new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = stopLimit }).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            return ExitCodes.Done;
        }
        catch (Exception failure)
        {
            var code = exitCodeOf(failure);
            // For a bug, the place in the code matters more than the message.
            return Tell([code == ExitCodes.Internal ? failure.ToString() : failure.Message], code);
        }
    }

    /// <summary>How long a stop may take so that the process ends within the grace period.</summary>
    public static TimeSpan StopTimeOf(Settings settings) => TimeSpan.FromSeconds(settings.Get(CommonSettings.StopGrace)) - 1.5 * StopReserve;

    /// <summary>Writes lines to standard error.</summary>
    /// <returns>The exit code.</returns>
    public int Tell(IEnumerable<string> lines, int exitCode)
    {
        foreach (var line in lines)
            Console.Error.WriteLine($"{program}: {line.ReplaceLineEndings(" ")}");
        return exitCode;
    }

    private void AddTo(
        Command parent, string name, string does, IReadOnlyList<Setting> table, Action<Settings> check, Func<Settings, CancellationToken, Task<int>> run)
    {
        var command = _flags.CommandOf(name, does, table);
        command.SetAction((_, stop) => run(_settings, stop));
        _tables[command] = (table, check);
        parent.Subcommands.Add(command);
    }

    // A misspelled flag gets the question that a misspelled name in the file or of a variable gets.
    private string WithQuestion(ParseResult parsed, string error)
    {
        var given = parsed.UnmatchedTokens.FirstOrDefault(
            token => token.StartsWith("--", StringComparison.Ordinal) && error.Contains($"'{token}'", StringComparison.Ordinal));
        if (given is null || !_tables.TryGetValue(parsed.CommandResult.Command, out var command))
            return error;
        var question = NearestName.Question(given.Split('=')[0], command.Table.Select(static setting => setting.Flag));
        return question.Length == 0 ? error : error.TrimEnd('.') + question;
    }

    private static Dictionary<string, string> Variables() =>
        Environment.GetEnvironmentVariables().Cast<DictionaryEntry>().ToDictionary(one => (string)one.Key, one => (string?)one.Value ?? "");
}
