namespace KvCluster.ServiceDefaults.Programs;

/// <summary>The exit codes of <c>kv-node</c> and <c>kv-router</c>; deploy/OPERATIONS.md describes them.</summary>
internal static class ExitCodes
{
    /// <summary>Done, or stopped as asked.</summary>
    public const int Done = 0;

    /// <summary>From <c>health</c>: not ready, or no answer.</summary>
    public const int NotReady = 1;

    /// <summary>Mistakes in flags, environment or file, which are all listed. Starting again without a change fails in the same way.</summary>
    public const int Usage = 2;

    /// <summary>
    /// The port is in use; the data directory is in use, unusable or out of date; the coordinator does not answer; or a command was stopped before it was done.
    /// </summary>
    public const int Unavailable = 3;

    /// <summary>The data is in a format that this program does not read.</summary>
    public const int OtherFormat = 4;

    /// <summary>From <c>storage</c>: damage was found, or the data cannot be recovered.</summary>
    public const int Damaged = 65;

    /// <summary>A bug in the program.</summary>
    public const int Internal = 70;

    /// <summary>A disk refused or lost a write. A restart recovers from what was stored.</summary>
    public const int DiskFailed = 74;

    /// <summary>The coordinator refuses the user or password.</summary>
    public const int Denied = 77;
}
