namespace KvCluster.Client;

/// <summary>The status of a cluster, as its nodes report it.</summary>
/// <param name="Cluster">The cluster's name.</param>
/// <param name="Nodes">By node id.</param>
public sealed record ClusterStatus(string Cluster, IReadOnlyList<NodeStatus> Nodes);

/// <summary>The status of one node.</summary>
/// <param name="Node">Its id.</param>
/// <param name="Address">Where it listens.</param>
/// <param name="Version">The version of its program.</param>
/// <param name="Error">Why it did not answer; empty if it did.</param>
/// <param name="Replicas">By shard id.</param>
public sealed record NodeStatus(uint Node, string Address, string Version, string Error, IReadOnlyList<ReplicaStatus> Replicas)
{
    /// <summary>The format levels that its program supports; null if it did not answer.</summary>
    public KvLevelRange? FormatLevels { get; init; }

    /// <summary>The contract levels that its program supports; null if it did not answer.</summary>
    public KvLevelRange? ContractLevels { get; init; }
}

/// <summary>Versions of a format that a program supports.</summary>
/// <param name="Min">The least.</param>
/// <param name="Max">The greatest.</param>
public sealed record KvLevelRange(uint Min, uint Max);

/// <summary>The status of one replica of a shard.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Start">First key of the shard's range.</param>
/// <param name="End">End of the range, exclusive; empty means the end of all keys.</param>
/// <param name="Role">"leader", "follower", "candidate", "learner", "recovering", "failed", "opening", "stopped"; "unknown" if its node's version tells none
/// that this one knows.</param>
/// <param name="Epoch">The epoch of the leader that it follows.</param>
/// <param name="Leader">Node id of the leader that it knows; 0 if none.</param>
/// <param name="Last">The newest record in its journal.</param>
/// <param name="Durable">The newest record that is durable in its journal.</param>
/// <param name="Committed">The newest record known to be committed.</param>
/// <param name="Applied">The newest record in its tree.</param>
/// <param name="Keys">Keys in its tree.</param>
/// <param name="DataBytes">Length of its data file. Holes in it take no space on the disk.</param>
/// <param name="DataAllocatedBytes">Space on the disk that its data file takes.</param>
/// <param name="JournalBytes">Size of its journal.</param>
/// <param name="Digest">Digest of all its trees, at <paramref name="DigestEtag"/>; empty if not requested.</param>
/// <param name="DigestEtag">The state that the digest was computed on.</param>
/// <param name="Failure">Why it failed.</param>
/// <param name="Detail">The state of its protocol; null if not requested.</param>
public sealed record ReplicaStatus(
    uint Shard,
    ReadOnlyMemory<byte> Start,
    ReadOnlyMemory<byte> End,
    string Role,
    ulong Epoch,
    uint Leader,
    Etag Last,
    Etag Durable,
    Etag Committed,
    Etag Applied,
    ulong Keys,
    ulong DataBytes,
    ulong DataAllocatedBytes,
    ulong JournalBytes,
    ReadOnlyMemory<byte> Digest,
    Etag DigestEtag,
    string Failure,
    ReplicaDetail? Detail)
{
    /// <summary>The text of a role or state that this version does not know.</summary>
    internal const string Unknown = "unknown";

    /// <summary>The nodes of the shard's voters, as this replica knows them.</summary>
    public IReadOnlyList<uint> Voters { get; init; } = [];

    /// <summary>The disk space without which it cannot be created, opened or rebuilt; empty if it lacks none. It is tried again every few seconds.</summary>
    public string LacksSpace { get; init; } = "";
}

/// <summary>The state of a replica's protocol.</summary>
/// <param name="Replica">The replica's id.</param>
/// <param name="Incarnation">Random at each start of its process.</param>
/// <param name="Generation">The generation of the shard's record that it knows.</param>
/// <param name="LeaseLeft">At the leader: how much longer it may answer reads without asking its followers.</param>
/// <param name="GrantLeft">How much longer it has promised not to follow another leader.</param>
/// <param name="Followers">At the leader: the other replicas as it sees them.</param>
/// <param name="Decisions">Its latest decisions, oldest first.</param>
/// <param name="ScrubbedPages">Pages of its data file whose checksums were compared in the background since it was opened.</param>
/// <param name="ScrubPasses">How often the whole data file was covered since then.</param>
/// <param name="Compared">At the leader: the last comparison that found the voters' digests equal; null if there was none since it leads.</param>
public sealed record ReplicaDetail(
    ulong Replica,
    ulong Incarnation,
    ulong Generation,
    TimeSpan LeaseLeft,
    TimeSpan GrantLeft,
    IReadOnlyList<FollowerStatus> Followers,
    IReadOnlyList<ReplicaDecision> Decisions,
    ulong ScrubbedPages,
    ulong ScrubPasses,
    ComparedDigests? Compared);

/// <summary>A background comparison of a shard's trees that found no difference.</summary>
/// <param name="Etag">All compared replicas had applied exactly the records up to this one.</param>
/// <param name="Replicas">Number of voters compared, including the leader.</param>
/// <param name="Ago">Time since it ended.</param>
public sealed record ComparedDigests(Etag Etag, int Replicas, TimeSpan Ago);

/// <summary>A follower as its leader sees it.</summary>
/// <param name="Replica">The replica's id.</param>
/// <param name="Node">The node it is on.</param>
/// <param name="State">"probe", "replicate", "snapshot"; "unknown" if the leader's version tells none that this one knows.</param>
/// <param name="Acknowledged">Durable there, and counted by the leader.</param>
/// <param name="Sent">The last record sent.</param>
/// <param name="OutstandingBytes">Bytes sent and not yet acknowledged.</param>
/// <param name="GrantLeft">How much longer its grant to the leader lasts.</param>
/// <param name="Silent">Time since its last answer.</param>
/// <param name="SnapshotBytes">Size of the snapshot being sent; 0 if none.</param>
/// <param name="SnapshotStored">How much of it is stored there.</param>
/// <param name="SnapshotVerified">How much of it is verified there, when all is stored.</param>
public sealed record FollowerStatus(
    ulong Replica,
    uint Node,
    string State,
    Etag Acknowledged,
    Etag Sent,
    ulong OutstandingBytes,
    TimeSpan GrantLeft,
    TimeSpan Silent,
    ulong SnapshotBytes,
    ulong SnapshotStored,
    ulong SnapshotVerified);

/// <summary>A decision that a replica logged.</summary>
/// <param name="Time">By its node's clock.</param>
/// <param name="Text">What it decided.</param>
/// <param name="Alarm">An operator must look at it.</param>
public sealed record ReplicaDecision(DateTimeOffset Time, string Text, bool Alarm);

/// <summary>The result of a checkpoint of one replica.</summary>
/// <param name="Node">The node's id.</param>
/// <param name="Shard">The shard's id; null if the node did not answer.</param>
/// <param name="Covers">The last change that it covers.</param>
/// <param name="DataBytes">Size of the data file afterwards.</param>
/// <param name="Error">Why it failed; empty if it did not.</param>
public sealed record ReplicaCheckpoint(uint Node, uint? Shard, Etag Covers, ulong DataBytes, string Error);

/// <summary>Where operators allow replicas to be placed, and how far the moves have progressed.</summary>
/// <param name="Paused">No replica is moved.</param>
/// <param name="Leaving">Nodes that are to lose all their replicas, and how many they still have. A node with none can be removed, and is not listed any more
/// when it does not run.</param>
public sealed record PlacementStatus(bool Paused, IReadOnlyDictionary<uint, int> Leaving);

/// <summary>The levels in force in a cluster: the versions of its formats and of its contract.</summary>
/// <param name="Format">The format level.</param>
/// <param name="Contract">The contract level.</param>
/// <param name="Nodes">By node id: those that are registered or have a replica.</param>
public sealed record LevelsStatus(uint Format, uint Contract, IReadOnlyList<NodeLevelsStatus> Nodes)
{
    /// <summary>The format level in force before the call, which is less if the call has raised it.</summary>
    public uint FormatBefore { get; init; }

    /// <summary>The contract level in force before the call.</summary>
    public uint ContractBefore { get; init; }
}

/// <summary>The levels of one node.</summary>
/// <param name="Node">Its id.</param>
public sealed record NodeLevelsStatus(uint Node)
{
    /// <summary>The version of its program; empty if the node is not registered.</summary>
    public string Version { get; init; } = "";

    /// <summary>The format levels that its program supports; null if that is not known.</summary>
    public KvLevelRange? FormatLevels { get; init; }

    /// <summary>The contract levels that its program supports; null if that is not known.</summary>
    public KvLevelRange? ContractLevels { get; init; }

    /// <summary>The format level that its process uses, which was in force when it started; null if that is not known.</summary>
    public uint? FormatInUse { get; init; }

    /// <summary>The contract level that its process uses; null if that is not known.</summary>
    public uint? ContractInUse { get; init; }
}

/// <summary>The result of draining a node.</summary>
/// <param name="GivenAway">Number of leaderships transferred.</param>
/// <param name="Kept">Shards that it still leads, and why.</param>
public sealed record DrainOutcome(int GivenAway, IReadOnlyDictionary<uint, string> Kept);
