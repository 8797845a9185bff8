namespace KvCluster.Cli;

/// <summary>Ends a command with one line for the person and an exit code for the script.</summary>
internal sealed class CliException(int exitCode, string message) : Exception(message)
{
    public int ExitCode { get; } = exitCode;
}

/// <summary>Standard output cannot be written: its reader is gone, or the disk is full.</summary>
internal sealed class OutputClosedException(IOException cause) : IOException($"standard output: {cause.Message}", cause);
