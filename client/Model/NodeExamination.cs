namespace KvCluster.Client;

/// <summary>The examination of a node's machine, its disk and the coordinator.</summary>
/// <param name="Node">Its id.</param>
/// <param name="Address">Where it listens.</param>
/// <param name="Version">The version of its program.</param>
/// <param name="Error">Why it did not answer, in which case the rest is not set; empty if it did.</param>
public sealed record NodeExamination(uint Node, string Address, string Version, string Error)
{
    /// <summary>Its clock when the request arrived.</summary>
    public DateTimeOffset Clock { get; init; }

    /// <summary>How long it takes to write and sync 4 KiB in its data directory: the median of several times.</summary>
    public TimeSpan SyncMedian { get; init; }

    /// <summary>The longest of them.</summary>
    public TimeSpan SyncLongest { get; init; }

    /// <summary>Why that could not be measured; empty if it was.</summary>
    public string DiskError { get; init; } = "";

    /// <summary>Free space in the data directory's file system.</summary>
    public ulong DiskFreeBytes { get; init; }

    /// <summary>The size of that file system.</summary>
    public ulong DiskBytes { get; init; }

    /// <summary>File descriptors that its process has open; 0 if not known on its system.</summary>
    public ulong OpenFiles { get; init; }

    /// <summary>The maximum number of open file descriptors; 0 if not known on its system.</summary>
    public ulong OpenFilesMax { get; init; }

    /// <summary>How long the coordinator took for one linearizable read.</summary>
    public TimeSpan CoordinatorTime { get; init; }

    /// <summary>Why the coordinator did not answer; empty if it did.</summary>
    public string CoordinatorError { get; init; } = "";

    /// <summary>Why the node does not go by the coordinator's records, although the coordinator answers; empty if it does.</summary>
    public string CoordinatorRefusal { get; init; } = "";

    /// <summary>When the first of its certificates expires; null if it has none.</summary>
    public DateTimeOffset? CertificateEnd { get; init; }

    /// <summary>The file with that certificate.</summary>
    public string CertificateFile { get; init; } = "";

    /// <summary>Why the certificates now in its files are not used; empty if they are.</summary>
    public string CertificateError { get; init; } = "";

    /// <summary>How often its writer threads or timers stalled for a quarter of a second or more since it started.</summary>
    public long Stalls { get; init; }

    /// <summary>The length of the last stall.</summary>
    public TimeSpan StallLength { get; init; }

    /// <summary>When it ended; null if there was none.</summary>
    public DateTimeOffset? StallEnd { get; init; }

    /// <summary>What is known of its cause; empty if there was none.</summary>
    public string StallText { get; init; } = "";

    /// <summary>The memory of its stores; null if not known.</summary>
    public NodeMemory? Memory { get; init; }

    /// <summary>Copies of replicas that were set aside and that nobody has deleted yet.</summary>
    public IReadOnlyList<AsideReplica> Aside { get; init; } = [];
}

/// <summary>The directory of a replica that was damaged or an old copy, which a node keeps for whoever wants to examine it.</summary>
/// <param name="Name">Its name in the directory "aside" of the data directory.</param>
/// <param name="Shard">The shard.</param>
/// <param name="Bytes">The length of its files.</param>
/// <param name="KeptBecause">While a replica of the node cannot be rebuilt because space is missing: why this copy was not deleted for it; otherwise
/// empty.</param>
public sealed record AsideReplica(string Name, uint Shard, ulong Bytes, string KeptBecause);

/// <summary>Memory that the stores of a node's replicas use together. The sum is what the budget bounds.</summary>
/// <param name="BudgetBytes">The bytes that they may use.</param>
/// <param name="ChangedPagesBytes">Changed pages, which the next checkpoints will write.</param>
/// <param name="ReaderPagesBytes">Pages that only open snapshots still need.</param>
/// <param name="FreePagesBytes">Memory for pages that is not in use.</param>
/// <param name="JournalBytes">Journal records that wait for the disk or to be applied, or are kept for followers.</param>
/// <param name="JournalIndexBytes">The index of the records in the journals.</param>
/// <param name="RequestsBytes">Requests that wait for their shard's writer.</param>
/// <param name="HeldBack">For how long stores were held back because of the budget since the process started, summed over them.</param>
public sealed record NodeMemory(
    ulong BudgetBytes,
    ulong ChangedPagesBytes,
    ulong ReaderPagesBytes,
    ulong FreePagesBytes,
    ulong JournalBytes,
    ulong JournalIndexBytes,
    ulong RequestsBytes,
    TimeSpan HeldBack)
{
    /// <summary>All that is used.</summary>
    public ulong UsedBytes => ChangedPagesBytes + ReaderPagesBytes + FreePagesBytes + JournalBytes + JournalIndexBytes + RequestsBytes;
}
