// kv: the command line client. Every failure is one line on standard error and one of the exit codes in ExitCodes.
using System.CommandLine;
using KvCluster.Cli;
using KvCluster.Cli.Commands;

if (args.Length == 0)
    return PrintHelp(HelpTopics.Overview, ExitCodes.Done);
var root = new RootCommand("Command line client of KvCluster: read, write and load keys, examine and administer a cluster.")
{
    Globals.Endpoint, Globals.OutputFormat, Globals.Gateway, Globals.TlsCa, Globals.TlsCert, Globals.TlsKey, Globals.TlsServerName,
    Globals.TimeLimit,
};
foreach (var command in CommandTable.For(args))
    root.Subcommands.Add(command);
if (ArgumentBytes.FirstWrong(args) is { } wrong)
    return Refuse($"'{wrong}' is not UTF-8, as keys and values on the command line must be. Give other keys by --key-hex or --key-base64, "
        + "and other values as @FILE.");
// Keys may begin with @, so arguments that name files of further arguments are disabled.
var parsed = root.Parse(args, new ParserConfiguration { ResponseFileTokenReplacer = null });
if (parsed.Errors.Count > 0)
    return Refuse(ParseMistakes.Describe(parsed.Errors) + ParseMistakes.CommandMeant(parsed));
if (ParseMistakes.UnknownOption(parsed, args) is { } unknown)
    return Refuse($"Unrecognized option '{unknown}'. Write -- in front of arguments that begin so, or OPTION=VALUE for the value of an option."
        + ParseMistakes.OptionMeant(parsed, unknown));

using var interruption = new Interruption();
using var help = new StringWriter();
var exitCode = await parsed.InvokeAsync(
    new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = null, Output = help }, interruption.Token);
return help.GetStringBuilder().Length == 0 ? exitCode : PrintHelp(help.ToString(), exitCode);

static int Refuse(string mistake)
{
    StandardError.Tell($"{mistake} See kv --help.");
    return ExitCodes.Usage;
}

static int PrintHelp(string text, int exitCode)
{
    try
    {
        var output = new Output(OutputForm.Text);
        output.Lines(text.TrimEnd());
        output.Flush();
        return exitCode;
    }
    catch (OutputClosedException e)
    {
        return CliCommand.Tell(e);
    }
}
