namespace KvCluster.Local;

/// <summary>Exit codes of the launcher. Those that `kv` has too mean the same.</summary>
internal static class ExitCodes
{
    public const int Stopped = 0;
    public const int Usage = 2;

    /// <summary>A port is taken, the data directory is in use, or a program of the cluster does not start.</summary>
    public const int Unavailable = 3;

    public const int OtherFormat = 4;
    public const int Internal = 70;
}
