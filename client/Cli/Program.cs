// kv: a KvCluster from the command line. Every failure is one line on standard error and an exit code of ExitCodes.
using System.CommandLine;
using KvCluster.Cli;
using KvCluster.Cli.Commands;

var root = new RootCommand("Read, write, load and look at a KvCluster.")
{
    Globals.Endpoint, Globals.OutputFormat, Globals.Gateway, Globals.TlsCa, Globals.TlsCert, Globals.TlsKey, Globals.TlsServerName,
};
foreach (var command in CommandTable.For(args))
    root.Subcommands.Add(command);
if (ArgumentBytes.FirstWrong(args) is { } wrong)
    return Refuse($"'{wrong}' is not UTF-8, as keys and values on the command line are; load takes any bytes.");
// A key may begin with @: no argument names a file with more arguments.
var parsed = root.Parse(args, new ParserConfiguration { ResponseFileTokenReplacer = null });
if (parsed.Errors.Count > 0)
    return Refuse(ParseMistakes.Describe(parsed.Errors));

using var interruption = new Interruption();
using var help = new StringWriter();
var exitCode = await parsed.InvokeAsync(new InvocationConfiguration { EnableDefaultExceptionHandler = false, ProcessTerminationTimeout = null, Output = help }, interruption.Token);
return help.GetStringBuilder().Length == 0 ? exitCode : PrintHelp(help.ToString(), exitCode);

static int Refuse(string mistake)
{
    StandardError.Tell($"{mistake} (--help lists what there is)");
    return ExitCodes.Usage;
}

static int PrintHelp(string text, int exitCode)
{
    try
    {
        var output = new Output(isJson: false);
        output.Lines(text.TrimEnd());
        output.Flush();
        return exitCode;
    }
    catch (OutputClosedException e)
    {
        StandardError.Tell(e.Message);
        return ExitCodes.Internal;
    }
}
