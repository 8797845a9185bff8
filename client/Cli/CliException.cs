namespace KvCluster.Cli;

/// <summary>A command that cannot go on: one line for the person, an exit code for the script.</summary>
internal sealed class CliException(int exitCode, string message) : Exception(message)
{
    public int ExitCode { get; } = exitCode;
}
