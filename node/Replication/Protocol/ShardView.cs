using KvCluster.V1;

namespace KvCluster.Replication.Protocol;

/// <summary>
/// The shard's record as this replica knows it: who the replicas are, who votes, which node each is on. Replaced as a whole, never by an
/// older revision.
/// </summary>
internal sealed class ShardView
{
    private readonly Dictionary<ulong, ReplicaRecord> _replicas = [];

    public ShardView(ShardRecord record, long revision)
    {
        Record = record;
        Revision = revision;
        foreach (var replica in record.Replicas)
            _replicas[replica.Replica] = replica;
        Voters = VotersOf(record);
    }

    public ShardRecord Record { get; }

    /// <summary>The record's mod revision.</summary>
    public long Revision { get; }

    public Quorum Voters { get; }

    public bool Contains(ulong replica) => _replicas.ContainsKey(replica);

    /// <summary>The node a replica is on; 0: not in the record.</summary>
    public uint NodeOf(ulong replica) => _replicas.TryGetValue(replica, out var found) ? found.Node : 0;

    /// <summary>A voter whose directory exists: only such a replica votes, acknowledges, grants and stands.</summary>
    public bool MayVote(ulong replica) => MayVote(Record, replica);

    /// <inheritdoc cref="MayVote(ulong)"/>
    public static bool MayVote(ShardRecord record, ulong replica) =>
        record.Replicas.Any(candidate => candidate.Replica == replica && candidate is { Learner: false, Created: true });

    /// <summary>Leaders of new shards are spread over the nodes: each shard has one replica that stands at once at epoch 0.</summary>
    public bool IsFirstLeader(ulong replica) => Record.Epoch == 0 && PreferredLeader(Record).Replica == replica;

    /// <summary>The replica that stands first while the shard is new; the placing of replicas spreads these over the nodes.</summary>
    public static ReplicaRecord PreferredLeader(ShardRecord record) => record.Replicas[(int)(record.Shard % (uint)record.Replicas.Count)];

    /// <summary>The record says that this process leads this epoch.</summary>
    public bool Names(ulong epoch, ulong leader, ulong incarnation) =>
        Record.Epoch == epoch && Record.Leader == leader && Record.LeaderIncarnation == incarnation;

    /// <summary>The set of voters that a record gives.</summary>
    public static Quorum VotersOf(ShardRecord record) => new(record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.Replica).ToArray());
}
