using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Shards.Reads;
using KvCluster.Node.Telemetry;
using KvCluster.Replication;
using KvCluster.Replication.Log;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// A replica's turns on the shard's writer executor. A turn passes what has happened to the protocol's core, one event at a time, performs what the core asks
/// for, and appends the writes that wait. An exception in a turn ends the replica.
/// </summary>
/// <param name="context">The clocks and the telemetry.</param>
/// <param name="life">Whether the replica takes turns.</param>
/// <param name="core">The protocol.</param>
/// <param name="performer">Performs the core's effects.</param>
/// <param name="journal">Provides the current store.</param>
/// <param name="notices">What the store has reported.</param>
/// <param name="mailbox">What other threads have left.</param>
/// <param name="timer">Wakes the replica for the core's ticks.</param>
/// <param name="reads">Reads that wait for the core.</param>
/// <param name="published">Whether this replica serves.</param>
/// <param name="disk">The state of its disk.</param>
/// <param name="atOnce">Events to be stepped right after the running list of effects.</param>
internal sealed class EventLoop(
    ShardReplicaContext context,
    ReplicaLife life,
    ReplicaCore core,
    EffectPerformer performer,
    ReplicaJournalView journal,
    StoreNotices notices,
    ReplicaMailbox mailbox,
    TickTimer timer,
    ReplicaReads reads,
    PublishedState published,
    ReplicaDisk disk,
    Queue<Event> atOnce)
{
    // Bounded so that one busy shard does not delay the others on the same executor.
    private const int EventsPerTurn = 256;

    private Action<Event>? _step;
    private bool _sendsHeartbeats;
    private bool _hasToWriteControl;

    /// <summary>Takes one turn.</summary>
    public void TakeTurn()
    {
        mailbox.BeginTurn();
        (core.HeartbeatsEvery, core.ControlsEvery) = (context.Paces.Heartbeats.Every, context.Paces.Controls.Every);
        try
        {
            if (life.IsStopping)
                life.Stop();
            else if (life.Phase == ReplicaPhase.Running)
                Turn();
            while (mailbox.TryTakeVisit(out var visit))
                visit.Run(works: life.Phase != ReplicaPhase.Ended && !life.IsStopping);
        }
        catch (Exception failure)
        {
            life.Fail(failure);
        }
        var works = life.Phase == ReplicaPhase.Running;
        Count(context.Paces.Heartbeats, ref _sendsHeartbeats, works && core.Leads && !core.IsQuiescent);
        Count(context.Paces.Controls, ref _hasToWriteControl, works && core.HasToWriteControl);
    }

    private static void Count(SharedPace pace, ref bool wasOne, bool isOne)
    {
        if (isOne == wasOne)
            return;
        wasOne = isOne;
        pace.Count(isOne);
    }

    private void Turn()
    {
        if (timer.TryTake() && context.NowUs() >= core.NextTickUs)
            Step(Event.Tick.Instance);
        var durableRose = notices.TakeDurable();
        if (durableRose)
            Step(Event.Durable.Instance);
        for (var left = EventsPerTurn; left > 0 && mailbox.TryTake(out var happened); left--)
            Step(happened);
        reads.Ask(_step ??= Step);
        AppendBatches();
        disk.Observe(journal.Store, core.Pace, durableRose ? journal.DurableAtUs : null);
        TellDisk();
        // After the events, so that what arrived meanwhile is in the journal before a long backlog is applied.
        var appliesMore = journal.Store.Follower.ApplyMore();
        reads.ReleaseApplied();
        timer.Arm(core.NextTickUs, context.NowUs());
        if (appliesMore || mailbox.HasEvents)
            mailbox.Wake();
    }

    private void Step(Event happened)
    {
        if (happened is Event.FrameReceived { Frame: var frame })
        {
            if (frame.PayloadCase == Frame.PayloadOneofCase.Append && !journal.Store.Follower.HasRoom)
                return;
            if (context.Telemetry.IsWatching)
                Note(frame);
        }

        atOnce.Enqueue(happened);
        while (life.Phase != ReplicaPhase.Ended && atOnce.TryDequeue(out var next))
        {
            core.Step(next, context.NowUs());
            foreach (var effect in core.Effects)
                performer.Perform(effect);
        }
        // Records that the core has declared committed are applied by this point at the earliest, so reads advance only when all are.
        if (!journal.Store.Committed.IsApplying)
            reads.Advance(core.CurrentUs);
    }

    private void Note(Frame frame)
    {
        if (frame.PayloadCase == Frame.PayloadOneofCase.Append && frame.Append.Traces.Count > 0)
            context.Telemetry.Received(frame.Append);
        else if (frame.PayloadCase == Frame.PayloadOneofCase.Ack && core.Leads && core.View.NodeOf(frame.SenderId) is { IsNone: false } node)
            context.Telemetry.Acknowledged(node, frame.Ack.Durable.FromWire());
    }

    /// <summary>Appends a batch for each free lane of the journal. Followers receive it while this replica's write is in progress.</summary>
    private void AppendBatches()
    {
        while (published.IsServing && journal.Store.Writes.CanAppend && journal.Store.Writes.HasWork && !LeavesFullDisk()
            && journal.Store.Writes.TryAppendBatch(context.Clock.GetUtcNow(), out var record))
        {
            Step(new Event.RecordAppended(record));
        }
    }

    // While another replica is asked to take over from a full disk, writes wait. Their callers are then redirected and not refused.
    private bool LeavesFullDisk()
    {
        if (!journal.Store.Space.IsDiskFull)
            return false;
        TellDisk();
        return core.IsTransferring;
    }

    private void TellDisk()
    {
        if (disk.TryChange(journal.Store))
            Step(new Event.DiskHealth(disk.State != DiskState.Healthy));
    }
}
