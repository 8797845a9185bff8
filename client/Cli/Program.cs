// kv: a KvCluster from the command line. Every failure is one line on standard error and an exit code of ExitCodes.
using System.CommandLine;
using KvCluster.Cli;
using KvCluster.Cli.Commands;

var root = new RootCommand("Read, write, load and look at a KvCluster.")
{
    Globals.Endpoint, Globals.OutputFormat, Globals.Gateway,
    KeyCommands.Get(), KeyCommands.Put(), KeyCommands.Delete(), ScanCommands.Scan(), ScanCommands.Count(),
    LoadCommand.Create(), VerifyCommand.Create(), BenchCommand.Create(), StatusCommand.Create(), AdminCommand.Create(),
};
var parsed = root.Parse(args);
if (parsed.Errors.Count > 0)
{
    var mistakes = string.Join(" ", parsed.Errors.Select(error => error.Message)).ReplaceLineEndings(" ");
    Console.Error.WriteLine($"kv: {mistakes} (--help lists what there is)");
    return ExitCodes.Usage;
}

return await parsed.InvokeAsync(new InvocationConfiguration { EnableDefaultExceptionHandler = false });
