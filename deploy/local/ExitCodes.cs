namespace KvCluster.Local;

/// <summary>Exit codes of the launcher; those of `kv` where they mean the same.</summary>
internal static class ExitCodes
{
    public const int Stopped = 0;
    public const int Usage = 2;

    /// <summary>A port is taken, the data folder is in use, or a program of the cluster does not start.</summary>
    public const int Unavailable = 3;

    public const int OtherFormat = 4;
    public const int Internal = 70;
}
