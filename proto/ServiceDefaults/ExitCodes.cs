namespace KvCluster.ServiceDefaults;

/// <summary>What <c>kv-node</c> and <c>kv-router</c> exit with; deploy/OPERATIONS.md describes them.</summary>
internal static class ExitCodes
{
    /// <summary>Done, or stopped as asked.</summary>
    public const int Done = 0;

    /// <summary>Of <c>health</c>: not ready, or no answer.</summary>
    public const int NotReady = 1;

    /// <summary>A mistake in flags, environment or file; all are listed. The same will happen again.</summary>
    public const int Usage = 2;

    /// <summary>The port is taken, the data folder is in use, cannot be used or is out of date, or the coordinator does not answer.</summary>
    public const int Unavailable = 3;

    /// <summary>The data are of another format than this program's.</summary>
    public const int OtherFormat = 4;

    /// <summary>A mistake of the program.</summary>
    public const int Internal = 70;

    /// <summary>A disk refused or lost a write; a restart recovers from what is there.</summary>
    public const int DiskFailed = 74;

    /// <summary>The coordinator refuses user or password.</summary>
    public const int Denied = 77;
}
