namespace KvCluster.Node.Telemetry;

/// <summary>How a node's replicas and streams stood at one moment. Immutable.</summary>
/// <param name="Replicas">By shard.</param>
/// <param name="Links">Streams to other nodes.</param>
/// <param name="MapShards">Shards of the cluster, by the map that the node has.</param>
/// <param name="FreeBytes">Free space on the data directory's disk; null: the system does not say.</param>
internal sealed record NodeReading(IReadOnlyList<ReplicaReading> Replicas, IReadOnlyList<LinkReading> Links, int MapShards, long? FreeBytes)
{
    public static readonly NodeReading None = new([], [], 0, null);
}

/// <summary>How a replica stood at one moment.</summary>
internal sealed record ReplicaReading
{
    public required uint Shard { get; init; }

    /// <summary>As <c>kv status</c> names it: leader, follower, candidate, learner, recovering, stopped, failed.</summary>
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

/// <summary>How far a follower was behind its leader at one moment.</summary>
/// <param name="Node">Where it is.</param>
/// <param name="LagBytes">Journal that it has not acknowledged; as far as the leader's reaches back.</param>
/// <param name="LagChanges">Changes that it has not acknowledged.</param>
internal readonly record struct FollowerReading(uint Node, long LagBytes, long LagChanges);

/// <summary>How a stream to another node stood at one moment.</summary>
/// <param name="Node">The other one.</param>
/// <param name="IsUp">It is open, and something came on it within the last seconds.</param>
/// <param name="WaitingBytes">Of frames that were not sent yet.</param>
/// <param name="Dropped">Frames that were not taken, since the start.</param>
internal readonly record struct LinkReading(uint Node, bool IsUp, long WaitingBytes, long Dropped);
