using KvCluster.Internal.V1;

namespace KvCluster.Replication.Protocol;

/// <summary>
/// The shard's record as this replica knows it: the replicas, which of them vote, and their nodes. Replaced as a whole, never by an older
/// version.
/// </summary>
internal sealed class ShardView
{
    private readonly Dictionary<ReplicaId, ReplicaRecord> _replicas = [];

    public ShardView(ShardRecord record, long revision)
    {
        Record = record;
        Revision = revision;
        foreach (var replica in record.Replicas)
            _replicas[replica.ReplicaId] = replica;
        Voters = VotersOf(record);
    }

    public ShardRecord Record { get; }

    /// <summary>The record's mod revision.</summary>
    public long Revision { get; }

    /// <summary>Orders this copy among others of the record.</summary>
    public RecordVersion Version => RecordVersion.Of(Record, Revision);

    public Quorum Voters { get; }

    public bool Contains(ReplicaId replica) => _replicas.ContainsKey(replica);

    /// <summary>The replica's node; 0 if it is not in the record.</summary>
    public NodeId NodeOf(ReplicaId replica) => _replicas.TryGetValue(replica, out var found) ? found.NodeId : NodeId.None;

    /// <summary>
    /// Whether the replica is a voter whose directory exists, and which is not absent. Only such a replica votes, acknowledges, grants and campaigns.
    /// </summary>
    public bool MayVote(ReplicaId replica) => MayVote(Record, replica);

    /// <inheritdoc cref="MayVote(ReplicaId)"/>
    public static bool MayVote(ShardRecord record, ReplicaId replica) =>
        record.Replicas.Any(candidate => candidate.ReplicaId == replica && candidate is { Learner: false, Created: true, Absent: false });

    /// <summary>Each new shard has one replica that campaigns at once at epoch 0, so that the leaders of new shards are spread over the nodes.</summary>
    public bool IsFirstLeader(ReplicaId replica) => Record.Epoch == 0 && PreferredLeader(Record).ReplicaId == replica;

    /// <summary>The replica that campaigns first while the shard is new. Replica placement spreads these over the nodes.</summary>
    public static ReplicaRecord PreferredLeader(ShardRecord record) => record.Replicas[(int)(record.Shard % (uint)record.Replicas.Count)];

    /// <summary>Whether the record says that this process leads this epoch.</summary>
    public bool Names(ulong epoch, ReplicaId leader, ulong incarnation) =>
        Record.Epoch == epoch && Record.LeaderId == leader && Record.LeaderIncarnation == incarnation;

    /// <summary>The set of voters of a record.</summary>
    public static Quorum VotersOf(ShardRecord record) =>
        Quorum.Of(IdsOf(record.Replicas.Where(static replica => !replica.Learner)), IdsOf(record.Replicas.Where(static replica => replica.Absent)));

    private static ReplicaId[] IdsOf(IEnumerable<ReplicaRecord> replicas) => [.. replicas.Select(static replica => replica.ReplicaId)];
}
