using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Following;

/// <summary>
/// The promised leader as its follower knows it: who it is, and up to which record this journal is the same as the leader's. It belongs to one epoch. Called
/// within the core's steps.
/// </summary>
internal sealed class LeaderMatch(ReplicaContext context)
{
    /// <summary>The leader of the promised epoch, once it was heard; 0 before.</summary>
    public ReplicaId Leader { get; private set; }

    /// <summary>Whether a common record is known. Before that this replica's tail may differ from the leader's.</summary>
    public bool IsAny { get; private set; }

    /// <summary>
    /// The last record known to be common, which never decreases within an epoch (R10); it may be one whose append is an effect of the running step.
    /// </summary>
    public Etag Last { get; private set; }

    /// <summary>What may be acknowledged while the journal is not being changed: durable here, and matched with the leader.</summary>
    public Etag Durable => IsAny ? Etag.Min(Last, context.Journal.Durable.Etag) : Etag.None;

    /// <summary>The promise rose.</summary>
    public void StartEpoch()
    {
        Leader = ReplicaId.None;
        IsAny = false;
        Last = Etag.None;
    }

    /// <summary>Any frame of the promised leader shows who leads.</summary>
    public void Hear(Frame frame)
    {
        if (Leader == frame.SenderId)
            return;
        Invariant.Check(Leader.IsNone, $"Replica {frame.SenderId} leads epoch {frame.Epoch}, which replica {Leader} leads.");
        Leader = frame.SenderId;
        context.Emit(new Effect.LeaderKnown(frame.Epoch, frame.SenderId, context.View.NodeOf(frame.SenderId)));
    }

    /// <summary>This record is common with the leader's journal, hence all before it.</summary>
    public void Note(Etag common)
    {
        Invariant.Check(common.Epoch <= context.Promised, $"A record of epoch {common.Epoch} is common with the leader of epoch {context.Promised}.");
        Last = IsAny ? Etag.Max(Last, common) : common;
        IsAny = true;
    }
}
