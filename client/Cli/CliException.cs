namespace KvCluster.Cli;

/// <summary>Ends a command with one line for the person and an exit code for the script.</summary>
internal sealed class CliException(int exitCode, string message) : Exception(message)
{
    public int ExitCode { get; } = exitCode;
}
