namespace KvCluster.Node;

/// <summary>Exit codes of kv-node.</summary>
internal static class ExitCodes
{
    public const int Stopped = 0;
    public const int Usage = 2;

    /// <summary>The port is taken, the folder is in use or out of date, or the coordinator does not answer.</summary>
    public const int Unavailable = 3;

    public const int OtherFormat = 4;
    public const int Internal = 70;

    /// <summary>A disk refused or lost a write; a restart recovers from what is there.</summary>
    public const int DiskFailed = 74;
}
