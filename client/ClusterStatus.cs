namespace KvCluster.Client;

/// <summary>What the nodes of a cluster say of themselves.</summary>
/// <param name="Cluster">The cluster's name.</param>
/// <param name="Nodes">By node id.</param>
public sealed record ClusterStatus(string Cluster, IReadOnlyList<NodeStatus> Nodes);

/// <summary>One node.</summary>
/// <param name="Node">Its id.</param>
/// <param name="Address">Where it listens.</param>
/// <param name="Version">Of its program.</param>
/// <param name="Error">Why it did not answer; empty if it did.</param>
/// <param name="Replicas">By shard id.</param>
public sealed record NodeStatus(uint Node, string Address, string Version, string Error, IReadOnlyList<ReplicaStatus> Replicas);

/// <summary>One replica of a shard.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Start">First key of the shard's range.</param>
/// <param name="End">End of the range, exclusive; empty: the end of all keys.</param>
/// <param name="Role">"leader", "follower", "candidate", "learner", "failed".</param>
/// <param name="Epoch">The leadership that it obeys.</param>
/// <param name="Leader">Node id of the leader that it knows; 0: none.</param>
/// <param name="Last">The newest record in its journal.</param>
/// <param name="Durable">The newest record that is on its disk.</param>
/// <param name="Committed">The newest record known to be committed.</param>
/// <param name="Applied">The newest record in its tree.</param>
/// <param name="Keys">Keys in its tree.</param>
/// <param name="DataBytes">Size of its data file.</param>
/// <param name="JournalBytes">Size of its journal.</param>
/// <param name="Digest">Over all its trees, at <paramref name="DigestEtag"/>; empty if not asked for.</param>
/// <param name="DigestEtag">The state that the digest is of.</param>
/// <param name="Failure">Why it failed.</param>
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
    ulong JournalBytes,
    ReadOnlyMemory<byte> Digest,
    Etag DigestEtag,
    string Failure);

/// <summary>What a checkpoint of one replica came to.</summary>
/// <param name="Node">The node's id.</param>
/// <param name="Shard">The shard's id.</param>
/// <param name="Covers">The last change that it covers.</param>
/// <param name="DataBytes">Size of the data file afterwards.</param>
/// <param name="Error">Why it failed; empty if it did not.</param>
public sealed record ReplicaCheckpoint(uint Node, uint Shard, Etag Covers, ulong DataBytes, string Error);
