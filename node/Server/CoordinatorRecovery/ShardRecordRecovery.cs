// One shard of a recovery: the newest copy of its record, whether the replicas that are there suffice, and the record that follows. Pure.
using System.Globalization;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>Rebuilds the record of one shard.</summary>
internal sealed class ShardRecordRecovery
{
    private readonly ShardId _shard;
    private readonly RecoveryFindings _found;
    private readonly HashSet<NodeId> _absent;
    private readonly List<(NodeId Node, KeptReplica Replica)> _replicas;
    private readonly List<string> _refusals;
    private readonly ShardRecord _newest;
    private readonly NodeId _source;

    private ShardRecordRecovery(
        ShardId shard, RecoveryFindings found, HashSet<NodeId> absent, (NodeId Source, ShardRecord Record) newest, List<string> refusals)
    {
        (_shard, _found, _absent, _refusals) = (shard, found, absent, refusals);
        (_source, _newest) = newest;
        _replicas = [.. ReplicasOf(found, shard).Where(entry => !absent.Contains(entry.Node))];
    }

    /// <summary>Plans a shard, and adds why it must not be recovered, if so.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="found">What the nodes say.</param>
    /// <param name="absent">Nodes whose replicas count for nothing: gone, or without whom the records were rebuilt before.</param>
    /// <param name="number">The number of this recovery.</param>
    /// <param name="refusals">Receives one line for each obstacle.</param>
    /// <returns>Null if no copy of its record was found.</returns>
    public static PlannedShard? Of(ShardId shard, RecoveryFindings found, HashSet<NodeId> absent, RecoveryNumber number, List<string> refusals)
    {
        var copies = found.Reports.SelectMany(static report => report.Shards, static (report, record) => (Source: new NodeId(report.Node), Record: record))
            .Concat(found.TrustedShards.Select(static record => (Source: NodeId.None, Record: record))).Where(copy => copy.Record.ShardId == shard).ToList();
        if (copies.Count == 0)
        {
            refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {ReplicasOf(found, shard).First().Node} has a replica of shard {shard}, but no "
                + $"node that answered has a copy of the shard's record"));
            return null;
        }
        var newest = copies.MaxBy(static copy => copy.Record.Rank);
        foreach (var other in copies.Where(copy => copy.Record.Rank == newest.Record.Rank && !IsSame(copy.Record, newest.Record)))
            refusals.Add(string.Create(CultureInfo.InvariantCulture, $"the copies of the record of shard {shard} from {NameOf(newest.Source)} and "
                + $"{NameOf(other.Source)} have generation {newest.Record.Generation} and differ"));
        return new ShardRecordRecovery(shard, found, absent, newest, refusals).Plan(number);
    }

    private PlannedShard Plan(RecoveryNumber number)
    {
        var voters = _newest.Replicas.Where(static replica => !replica.Learner).ToList();
        var intact = voters.Where(IsThere).ToList();
        var leader = Leader();
        RequireNewestRecord();
        var epoch = Epochs().Max();
        // A higher epoch was promised, or assigned, than the leader's own. It goes on until it is fenced, and takes a new epoch for itself if nobody else does.
        var goesOn = leader is { } running && running.Replica.LeadsEpoch == epoch;
        RequireMajority(voters.Count, intact.Count, goesOn);
        var record = _newest.Clone();
        (record.Recovery, record.RecoveryId) = (number.Number, number.Id);
        record.Generation = Generations().Max() + RecoveryPlan.Gap;
        MarkReplicas(record);
        // Above every floor too: the recovery before may have assigned epochs of which nobody here has heard.
        record.EpochFloor = (((Math.Max(epoch, Copies().Max(static copy => copy.EpochFloor)) / RecoveryPlan.Gap) + 1) * RecoveryPlan.Gap) + RecoveryPlan.Gap;
        record.Epoch = leader is null ? record.EpochFloor : epoch;
        record.LeaderId = goesOn ? new ReplicaId(leader!.Value.Replica.Replica) : ReplicaId.None;
        record.LeaderIncarnation = goesOn ? leader!.Value.Replica.Incarnation : 0;
        return new PlannedShard(
            record, _source, leader?.Node ?? NodeId.None,
            [.. intact.Select(static replica => replica.NodeId)], [.. voters.Except(intact).Select(static replica => replica.NodeId)],
            ReplicasOf(_found, _shard).Select(static entry => entry.Replica.LeaseLongestMs).DefaultIfEmpty(0UL).Max());
    }

    private static IEnumerable<(NodeId Node, KeptReplica Replica)> ReplicasOf(RecoveryFindings found, ShardId shard) =>
        found.Reports.SelectMany(static report => report.Replicas, static (report, replica) => (Node: new NodeId(report.Node), Replica: replica))
            .Where(entry => entry.Replica.Shard == shard.Value);

    private static string NameOf(NodeId source) => source.IsNone ? "the coordinator" : FormattableString.Invariant($"node {source}");

    // Everything but who leads and which directories exist, which change without a new generation.
    private static bool IsSame(ShardRecord one, ShardRecord other) =>
        one.Start.Equals(other.Start) && one.End.Equals(other.End) && one.Lineage.Equals(other.Lineage) && MembersOf(one).SetEquals(MembersOf(other));

    private static HashSet<(ulong Replica, uint Node, bool Learner)> MembersOf(ShardRecord record) =>
        [.. record.Replicas.Select(static replica => (replica.Replica, replica.Node, replica.Learner))];

    private bool IsThere(ReplicaRecord replica) => !replica.Absent && Found(replica) is { Damage: "", Removed: false };

    private KeptReplica? Found(ReplicaRecord replica) =>
        _replicas.FirstOrDefault(entry => entry.Node == replica.NodeId && entry.Replica.Replica == replica.Replica).Replica;

    // A leader that a majority has confirmed since the coordinator was lost. Nobody else can have changed the replicas, so it knows the newest record.
    private (NodeId Node, KeptReplica Replica)? Leader()
    {
        var leaders = _replicas.Where(static entry => entry.Replica.LeadsEpoch > 0).OrderByDescending(static entry => entry.Replica.LeadsEpoch).ToList();
        if (leaders.Count == 0)
            return null;
        var leader = leaders[0];
        if (_newest.Replicas.Any(replica => replica.Replica == leader.Replica.Replica && replica is { Learner: false, Absent: false }))
            return leader;
        _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {leader.Node} leads shard {_shard} in epoch {leader.Replica.LeadsEpoch}, but the "
            + $"newest record found, from {NameOf(_source)}, does not name its replica as a voter"));
        return null;
    }

    // Traces of a record that is newer than the newest one found. It may name replicas that have acknowledged what those named here lack.
    private void RequireNewestRecord()
    {
        foreach (var (node, replica) in ReplicasOf(_found, _shard))
        {
            if (replica.Replica != 0 && !replica.Removed && !Knows(replica.Replica))
                _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"node {node} has replica {replica.Replica:x} of shard {_shard}, which the newest "
                    + $"record found, from {NameOf(_source)}, neither names nor lists as removed"));
            else if (replica.PromisedLeader != 0 && !Knows(replica.PromisedLeader))
                _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"the replica of shard {_shard} on node {node} has followed replica "
                    + $"{replica.PromisedLeader:x}, which the newest record found, from {NameOf(_source)}, neither names nor lists as removed"));
            if (replica.Recovery == _newest.Recovery && replica.Generation > _newest.Generation)
                _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"the replica of shard {_shard} on node {node} has seen generation "
                    + $"{replica.Generation} of the shard's record, but the newest one found, from {NameOf(_source)}, is {_newest.Generation}"));
        }
    }

    private bool Knows(ulong replica) => _newest.Replicas.Any(named => named.Replica == replica) || _newest.Removed.Contains(replica);

    private void RequireMajority(int voters, int intact, bool isLed)
    {
        if (intact <= voters / 2)
        {
            _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"only {intact} of the {voters} voters of shard {_shard} are there, so acknowledged "
                + $"changes may be lost; start the nodes of the others with their data"));
            return;
        }
        var gone = _found.Without;
        // A newer record can only come from a node that has a replica by this record.
        if (isLed || !_newest.Replicas.Any(replica => gone.Contains(replica.NodeId)))
            return;
        // What such a node knew of later changes of the replicas is known to the others only under these two conditions (README.md).
        if (gone.Count > 1)
            _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"no replica of shard {_shard} leads, and {gone.Count} nodes are absent, which may have "
                + $"been a majority of newer replicas; start all but one of nodes {string.Join(", ", gone.Order())}"));
        else if (_newest.Replicas.Any(static replica => replica.Learner))
            _refusals.Add(string.Create(CultureInfo.InvariantCulture, $"no replica of shard {_shard} leads, its replicas were being changed, and node "
                + $"{gone.Single()}, which is absent, may have completed that; start it with its data"));
    }

    // A replica that exists, or has existed, must never be created again under its id: it may have promised and acknowledged. Copies do not tell, because the
    // mark that it was created changes no generation. So every voter counts as created, and a learner unless its node, which answered, has nothing of it.
    private void MarkReplicas(ShardRecord record)
    {
        foreach (var replica in record.Replicas)
        {
            replica.Absent |= _absent.Contains(replica.NodeId);
            var marked = Copies().SelectMany(static copy => copy.Replicas).FirstOrDefault(other => other.Replica == replica.Replica && other.Created);
            if (marked is not null)
                (replica.Created, replica.Creator) = (true, marked.Creator);
            replica.Created |= !replica.Learner || replica.Absent
                || _replicas.Any(entry => entry.Node == replica.NodeId && (entry.Replica.Replica == replica.Replica || entry.Replica.Replica == 0));
        }
    }

    private IEnumerable<ShardRecord> Copies() =>
        _found.Reports.SelectMany(static report => report.Shards).Concat(_found.HeldShards).Where(record => record.ShardId == _shard);

    private IEnumerable<ulong> Generations() =>
        Copies().Select(static record => record.Generation).Concat(ReplicasOf(_found, _shard).Select(static entry => entry.Replica.Generation));

    // Records that an interrupted recovery has put do not count, because it assigned no epoch to anybody.
    private IEnumerable<ulong> Epochs() =>
        Copies().Where(record => !_found.HeldShards.Contains(record) || _found.TrustedShards.Contains(record)).Select(static record => record.Epoch)
            .Concat(ReplicasOf(_found, _shard).Select(static entry => entry.Replica.PromisedEpoch)).Append(0UL);
}
