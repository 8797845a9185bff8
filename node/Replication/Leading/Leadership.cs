using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// Whether this replica leads: the present <see cref="Leader"/>, its lease, and what is asked of a leader, which is refused if there is none. Whether that
/// leader serves yet is <c>Leader.IsServing</c>. One per replica; called within the core's steps, except <see cref="Lease"/>.
/// </summary>
internal sealed class Leadership(ReplicaContext context)
{
    private const string NotLeader = "this replica does not lead";

    private ReadLease _lease = ReadLease.None;

    // No epoch is led twice, so the next one is greater (R1).
    private ulong _epochLast;

    /// <summary>The leadership of the promised epoch; null if this replica does not lead.</summary>
    public Leader? Leader { get; private set; }

    /// <summary>The lease as readers see it. Any thread.</summary>
    public ReadLease Lease => Volatile.Read(ref _lease);

    /// <summary>
    /// When a leader campaigns for a new epoch itself, because the record has long named a higher one; <see cref="long.MaxValue"/> if it does not.
    /// </summary>
    public long SupersededDueUs => Leader is null || Leader.SupersededUs == long.MaxValue ? long.MaxValue : Leader.SupersededUs + context.Options.TimeoutMaxUs;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => Leader is null ? long.MaxValue : SupersededDueUs > context.NowUs ? Math.Min(Leader.DueUs, SupersededDueUs) : Leader.DueUs;

    /// <summary>The epoch is won and prepared.</summary>
    public void Begin(ulong epoch, Quorum voters)
    {
        Invariant.Check(Leader is null, $"Epoch {epoch} begins while epoch {Leader?.Epoch} is led.");
        Invariant.Check(epoch > _epochLast, $"Epoch {epoch} begins after epoch {_epochLast} was led; no epoch is led twice.");
        _epochLast = epoch;
        Leader = new Leader(context, epoch, voters);
        context.Emit(new Effect.StartLeading(epoch, context.ShardTimes.OfLastRecord()));
    }

    /// <summary>The leadership is about to end. Should this replica lead again before anybody else, its time goes on.</summary>
    public void NoteShardTime()
    {
        if (Leader is { Phase: not LeaderPhase.Prepared })
            context.ShardTimes.Hear(Leader.Epoch, context.Journal.ShardTimeUs);
    }

    /// <summary>The leadership is over.</summary>
    /// <param name="reason">The reason.</param>
    /// <param name="successor">The leader of a higher epoch if that is the reason; else 0.</param>
    public void End(string reason, ReplicaId successor)
    {
        Invariant.Check(Leader is not null, $"A leadership ends that did not begin: {reason}.");
        // The lease ends before anything else, because readers on other threads go by it.
        Volatile.Write(ref _lease, ReadLease.None);
        Leader.Stop(reason, successor);
        Leader = null;
        context.Emit(new Effect.LeaderKnown(context.Promised, ReplicaId.None, NodeId.None));
    }

    /// <summary>Something was asked of a leader, or it is the answer to one of its effects.</summary>
    public void Handle(Event happened)
    {
        switch (happened)
        {
            case Event.RecordAppended appended:
                Invariant.Check(Leader is not null, $"Record {appended.Record.Name} was appended while this replica does not lead.");
                Leader.OnAppended(appended.Record);
                break;
            case Event.BodiesSent sent when Leader?.Epoch == sent.Epoch:
                Leader.OnBodiesSent(sent.Replica, sent.Last, sent.Bytes);
                break;
            case Event.ReadArrived read when Leader is { IsServing: true }:
                Leader.OnRead(read.ReadId);
                break;
            case Event.ReadArrived read:
                context.Emit(new Effect.ReadsRefused(read.ReadId));
                break;
            case Event.TransferAsked asked when Leader is not null:
                Leader.Transfer(asked.OrderId, asked.Replica);
                break;
            case Event.TransferAsked asked:
                context.Emit(new Effect.OrderEnded(asked.OrderId, false, NotLeader));
                break;
            case Event.ReplicasAsked asked when Leader is not null:
                Leader.ChangeReplicas(asked.OrderId, asked.Change);
                break;
            case Event.ReplicasAsked asked:
                context.Emit(new Effect.OrderEnded(asked.OrderId, false, NotLeader));
                break;
            case Event.SnapshotOpened opened when Leader is not null:
                Leader.OnSnapshotOpened(opened.Replica, opened.Covers, opened.BytesTotal);
                break;
            case Event.SnapshotOpened opened:
                context.Emit(new Effect.CloseSnapshot(opened.Replica));
                break;
            case Event.SnapshotLost lost:
                Leader?.OnSnapshotLost(lost.Replica, lost.Covers, lost.Reason);
                break;
        }
    }

    /// <summary>Tells readers of a lease that has changed.</summary>
    public void PublishLease()
    {
        var endUs = Leader?.LeaseEndUs ?? 0;
        Invariant.Check(
            endUs == long.MaxValue || endUs <= context.NowUs + context.Options.LeaseUs,
            $"At {context.NowUs} a lease ends at {endUs}, later than if it was granted now.");
        if (endUs != _lease.EndUs)
            Volatile.Write(ref _lease, endUs == 0 ? ReadLease.None : new ReadLease(Leader!.Epoch, endUs));
    }
}
