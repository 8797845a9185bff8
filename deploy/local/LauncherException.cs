namespace KvCluster.Local;

/// <summary>Why there is no cluster: one line for the person and an exit code for the script.</summary>
internal sealed class LauncherException(int exitCode, string message) : Exception(message)
{
    public int ExitCode { get; } = exitCode;
}
