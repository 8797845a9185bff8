using KvCluster.Internal.V1;

namespace KvCluster.Replication.Protocol;

/// <summary>One change of a shard's replicas. At most one replica joins the voters and at most one leaves them.</summary>
internal abstract record ReplicaChange
{
    private ReplicaChange()
    {
    }

    /// <summary>
    /// Adds a new replica, under an id never used before, that follows and does not vote. Its node creates its directory when it sees the record.
    /// </summary>
    /// <param name="Replica">Its id.</param>
    /// <param name="Node">Its node, which has no other replica of the shard except <paramref name="InPlaceOf"/>.</param>
    /// <param name="InPlaceOf">A lost replica, voter or not, that leaves for good in the same step, so that no replica is missing without a learner to
    /// replace it; 0: none.</param>
    /// <param name="Operation">The operation that adds it, for whoever leads next; 0: none.</param>
    /// <param name="ReplacesNode">The node of the voter that leaves when it becomes one; none if no voter does.</param>
    internal sealed record AddLearner(ReplicaId Replica, NodeId Node, ReplicaId InPlaceOf = default, ulong Operation = 0, NodeId ReplacesNode = default)
        : ReplicaChange;

    /// <summary>
    /// A learner that has caught up becomes a voter, unless there are enough. So two actors that bring up a learner for the same vacancy make one voter.
    /// </summary>
    internal sealed record Promote(ReplicaId Learner, int VotersMax) : ReplicaChange;

    /// <summary>A replica, voter or not, leaves for good.</summary>
    internal sealed record Remove(ReplicaId Replica) : ReplicaChange;

    /// <summary>A learner that has caught up replaces a voter, which leaves for good.</summary>
    internal sealed record Swap(ReplicaId Voter, ReplicaId Learner) : ReplicaChange;

    /// <summary>The learner that would become a voter; 0: none.</summary>
    public ReplicaId Joins => this switch
    {
        Promote promote => promote.Learner,
        Swap swap => swap.Learner,
        _ => ReplicaId.None,
    };

    /// <summary>The replica that would leave; 0: none.</summary>
    public ReplicaId Leaves => this switch
    {
        Remove remove => remove.Replica,
        Swap swap => swap.Voter,
        AddLearner add => add.InPlaceOf,
        _ => ReplicaId.None,
    };

    /// <summary>The change as it appears in logs.</summary>
    public sealed override string ToString() => this switch
    {
        AddLearner { InPlaceOf.IsNone: true } add => $"add replica {add.Replica} on node {add.Node} as a learner",
        AddLearner add => $"add replica {add.Replica} on node {add.Node} as a learner in place of {add.InPlaceOf}",
        Promote promote => $"make replica {promote.Learner} a voter",
        Remove remove => $"remove replica {remove.Replica}",
        Swap swap => $"replace replica {swap.Voter} with {swap.Learner}",
        _ => throw new InvariantException("This kind of change of the replicas has no text."),
    };

    /// <summary>The record after this change, with the next generation; null if it is refused.</summary>
    /// <param name="record">The newest record; not altered.</param>
    /// <param name="leader">The replica that executes the change, which cannot remove itself.</param>
    /// <param name="refusal">Why it is refused, for people.</param>
    public ShardRecord? ApplyTo(ShardRecord record, ReplicaId leader, out string refusal)
    {
        refusal = RefusalFor(record, leader);
        if (refusal.Length > 0)
            return null;
        var changed = record.Clone();
        changed.Generation++;
        if (this is AddLearner added)
            changed.Replicas.Add(new ReplicaRecord
            {
                ReplicaId = added.Replica, NodeId = added.Node, Learner = true, Operation = added.Operation, ReplacesNode = added.ReplacesNode.Value
            });
        if (!Joins.IsNone)
        {
            var joined = changed.Replicas.Single(replica => replica.ReplicaId == Joins);
            // The field Operation stays set, which shows that the operation has succeeded.
            (joined.Learner, joined.ReplacesNode) = (false, 0);
        }
        if (!Leaves.IsNone)
        {
            changed.Replicas.Remove(changed.Replicas.Single(replica => replica.ReplicaId == Leaves));
            changed.Removed.Add(Leaves.Value);
        }

        return changed;
    }

    private string RefusalFor(ShardRecord record, ReplicaId leader)
    {
        if (this is AddLearner added)
        {
            if (added.Replica.IsNone || record.HasRemoved(added.Replica) || record.Replicas.Any(replica => replica.ReplicaId == added.Replica))
                return $"the id {added.Replica} was used before";
            if (record.Replicas.Any(replica => replica.NodeId == added.Node && replica.ReplicaId != added.InPlaceOf))
                return $"node {added.Node} already has a replica of the shard";
        }

        if (!Joins.IsNone && !record.Replicas.Any(replica => replica.ReplicaId == Joins && replica is { Learner: true, Created: true }))
            return $"replica {Joins} is not a learner whose directory exists";
        if (this is Promote { VotersMax: var votersMax } && record.Replicas.Count(replica => !replica.Learner) >= votersMax)
            return $"the shard already has its {votersMax} voters";
        if (Leaves.IsNone)
            return "";
        if (Leaves == leader)
            return "a leader cannot remove itself; transfer the leadership first";
        if (record.Replicas.SingleOrDefault(replica => replica.ReplicaId == Leaves) is not { } leaving)
            return $"replica {Leaves} is not a replica of the shard";
        return this is Swap && leaving.Learner ? $"replica {Leaves} is not a voter" : "";
    }
}
