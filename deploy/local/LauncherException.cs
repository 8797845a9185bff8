namespace KvCluster.Local;

/// <summary>Why there is no cluster, as one line for the person who typed the command, and the exit code that says it to a script.</summary>
internal sealed class LauncherException(int exitCode, string message) : Exception(message)
{
    public int ExitCode { get; } = exitCode;
}
