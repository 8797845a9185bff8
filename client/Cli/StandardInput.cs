
namespace KvCluster.Cli;

/// <summary>Standard input, for the commands that accept "-". One reader.</summary>
internal static class StandardInput
{
    /// <exception cref="CliException">It is closed.</exception>
    public static Stream Open() => StandardHandles.IsOpen(StandardHandles.Input)
        ? Console.OpenStandardInput()
        : throw new CliException(ExitCodes.Usage, "standard input is closed.");
}
