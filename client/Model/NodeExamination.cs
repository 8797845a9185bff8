namespace KvCluster.Client;

/// <summary>What a node sees of its machine, its disk and the coordinator.</summary>
/// <param name="Node">Its id.</param>
/// <param name="Address">Where it listens.</param>
/// <param name="Version">Of its program.</param>
/// <param name="Error">Why it did not answer; empty if it did. The rest is not set then.</param>
public sealed record NodeExamination(uint Node, string Address, string Version, string Error)
{
    /// <summary>Its clock when the question arrived.</summary>
    public DateTimeOffset Clock { get; init; }

    /// <summary>What 4 KiB in its data folder take to be on stable storage: the median of several.</summary>
    public TimeSpan SyncMedian { get; init; }

    /// <summary>The longest of them.</summary>
    public TimeSpan SyncLongest { get; init; }

    /// <summary>Why that could not be measured; empty if it was.</summary>
    public string DiskError { get; init; } = "";

    /// <summary>Room in the data folder's file system.</summary>
    public ulong DiskFreeBytes { get; init; }

    /// <summary>The size of that file system.</summary>
    public ulong DiskBytes { get; init; }

    /// <summary>Descriptors that its process has open; 0: not known there.</summary>
    public ulong OpenFiles { get; init; }

    /// <summary>Descriptors that it may have open; 0: not known there.</summary>
    public ulong OpenFilesMax { get; init; }

    /// <summary>What the coordinator took for one linearizable read.</summary>
    public TimeSpan CoordinatorTime { get; init; }

    /// <summary>Why the coordinator gave no answer; empty if it did.</summary>
    public string CoordinatorError { get; init; } = "";

    /// <summary>When the first of its certificates ends; null: it has none.</summary>
    public DateTimeOffset? CertificateEnd { get; init; }

    /// <summary>The file with that certificate.</summary>
    public string CertificateFile { get; init; } = "";

    /// <summary>Why certificates that are in its files now are not used; empty: they are.</summary>
    public string CertificateError { get; init; } = "";

    /// <summary>How often its writer threads or timers stood still for a quarter of a second or more since it started.</summary>
    public long Stalls { get; init; }

    /// <summary>How long the last of these times was.</summary>
    public TimeSpan StallLength { get; init; }

    /// <summary>When that ended; null: there was none.</summary>
    public DateTimeOffset? StallEnd { get; init; }

    /// <summary>What is known of it; empty: there was none.</summary>
    public string StallText { get; init; } = "";
}
