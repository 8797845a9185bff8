namespace KvCluster.Node.Telemetry;

/// <summary>How a replica stood at one moment.</summary>
internal sealed record ReplicaReading
{
    public required uint Shard { get; init; }

    /// <summary>As <c>kv status</c> names it: leader, follower, candidate, learner, refilling, stopped, failed.</summary>
    public required string Role { get; init; }

    public ulong Epoch { get; init; }

    /// <summary>The last change that it has applied.</summary>
    public ulong Change { get; init; }

    /// <summary>It leads, and a majority follows it, as far as it can know: one that has lost its followers stays leader by name until it hears of another.</summary>
    public bool IsFollowed { get; init; }

    /// <summary>It works, and knows no leader of its shard that is followed.</summary>
    public bool IsLeaderless { get; init; }

    public bool HasLease { get; init; }

    /// <summary>healthy, slow or full.</summary>
    public string Disk { get; init; } = "healthy";

    public long Keys { get; init; }

    public long DataBytes { get; init; }

    public long JournalBytes { get; init; }

    /// <summary>Pages in memory that are in no checkpoint, or that readers need.</summary>
    public long ChangedBytes { get; init; }

    /// <summary>Open snapshots.</summary>
    public int Readers { get; init; }

    /// <summary>Age of the oldest of them.</summary>
    public TimeSpan SnapshotAge { get; init; }

    /// <summary>Memory and file that snapshots, or checkpoints that are sent, alone keep from being reused.</summary>
    public long PinnedBytes { get; init; }

    /// <summary>The others, if it leads.</summary>
    public IReadOnlyList<FollowerReading> Followers { get; init; } = [];
}
