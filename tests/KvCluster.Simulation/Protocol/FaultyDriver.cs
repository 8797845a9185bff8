using KvCluster.Internal.V1;
using KvCluster.Replication;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// The driver of a core, with one of the mistakes that a driver, or the core between an event and its effects, could make. It changes the events for
/// the core and the execution of its effects. Without a bug it changes nothing. One per process, on the run's thread.
/// </summary>
internal sealed class FaultyDriver(SimulationRun run, SimulatedReplica replica, MemoryJournal journal)
{
    private Frame? _prepare;
    private LogPosition _durableAtPrepare;
    private long _leaseEndUs;
    private long _readsOnUntilUs;

    private InjectedBug Bug => run.Bug;

    /// <summary>The control file as the core finds it.</summary>
    public HardState Recovered(HardState control) => Bug == InjectedBug.NoWaitAfterRestart ? control with { LeaseLongestUs = 0 } : control;

    /// <summary>The outcome of a transaction as the core is told.</summary>
    public SetOutcome Heard(SetOutcome outcome) => Bug == InjectedBug.UnknownIsWon && outcome == SetOutcome.Unknown ? SetOutcome.Won : outcome;

    /// <summary>The events that the core gets when a frame arrives, in order.</summary>
    public IEnumerable<Event> Arriving(Frame frame, ReplicaCore core, HardState synced, long nowUs)
    {
        if (Bug == InjectedBug.NoEpochCheck && IsAnswer(frame) && frame.Epoch < core.Epoch)
        {
            // Another copy may be in flight.
            frame = frame.Clone();
            frame.Epoch = core.Epoch;
        }

        if (frame.PayloadCase == Frame.PayloadOneofCase.Prepare && (_prepare is null || frame.Epoch > _prepare.Epoch))
        {
            (_prepare, _durableAtPrepare) = (frame, journal.Durable.Name);
            // The leader that holds the grant has not released it.
            if (Bug == InjectedBug.PrepareDuringGrant && frame.Epoch > core.Epoch && nowUs < core.GrantEndUs && synced.PromisedEpoch == core.Epoch)
                yield return new Event.FrameReceived(Released(synced));
        }

        yield return new Event.FrameReceived(frame);
    }

    /// <summary>The effects executed after a step, in order.</summary>
    public IEnumerable<Effect> Executed(IReadOnlyList<Effect> effects, ReplicaCore core, HardState synced)
    {
        foreach (var effect in Bug == InjectedBug.DigestBehindRecord ? effects.OrderBy(static effect => effect is Effect.TakeDigest) : effects.AsEnumerable())
            yield return effect;
        if (Bug != InjectedBug.PromiseNotSynced
            || _prepare is not { } prepare || prepare.Epoch != core.Epoch || synced.PromisedEpoch >= core.Epoch || core.Role != ReplicaRole.Follower)
            yield break;
        _prepare = null;
        yield return new Effect.Send(new((uint)run.Replicas.First(other => other.Id == prepare.SenderId).Node), new Frame
        {
            Shard = prepare.Shard,
            Generation = prepare.Generation,
            Epoch = prepare.Epoch,
            SenderId = replica.Id,
            SenderIncarnation = prepare.ReceiverIncarnation,
            ReceiverId = prepare.SenderId,
            ReceiverIncarnation = prepare.SenderIncarnation,
            Prepared = new Prepared { Last = journal.Durable.Name.ToWire() },
        });
    }

    /// <summary>A frame about to be sent.</summary>
    public void Leaving(Frame frame)
    {
        if (Bug == InjectedBug.AckBeforeSync)
        {
            frame.Ack?.Durable = Unsynced(frame.Ack.Durable);
            frame.HeartbeatAck?.Durable = Unsynced(frame.HeartbeatAck.Durable);
            frame.Match?.Durable = Unsynced(frame.Match.Durable);
        }

        if (Bug == InjectedBug.PrepareReadsEarly && frame.Prepared is { } prepared && _prepare?.Epoch == frame.Epoch)
            prepared.Last = _durableAtPrepare.ToWire();
    }

    /// <summary>The state written into the control file.</summary>
    public HardState Written(HardState control, HardState before, ReplicaCore core) => Bug switch
    {
        InjectedBug.CommittedAboveJournal => control with { Committed = core.Committed },
        InjectedBug.AcknowledgedStands when before.Acknowledged > control.Acknowledged => control with { Acknowledged = before.Acknowledged },
        _ => control,
    };

    /// <summary>A step has ended.</summary>
    public void Stepped(ReplicaCore core)
    {
        if (core.LeaseEndUs != 0)
            _leaseEndUs = core.LeaseEndUs;
    }

    /// <summary>The core no longer serves.</summary>
    public void ServingEnded(ReplicaCore core) => _readsOnUntilUs = Bug == InjectedBug.ReadOnAfterRelease && core.IsTransferring ? _leaseEndUs : 0;

    /// <summary>Whether reads are answered although the core does not serve.</summary>
    public bool ReadsOn(long nowUs) => nowUs < _readsOnUntilUs;

    /// <summary>Whether a read that needs a round is answered without a new one.</summary>
    public bool AnswersByEarlierRound => Bug == InjectedBug.RoundFromBefore;

    /// <summary>Whether a write is answered when it is appended.</summary>
    public bool AnswersUnpublished => Bug == InjectedBug.AnswerUnpublished;

    private static bool IsAnswer(Frame frame) => frame.PayloadCase
        is Frame.PayloadOneofCase.Ack or Frame.PayloadOneofCase.HeartbeatAck or Frame.PayloadOneofCase.Match or Frame.PayloadOneofCase.SnapshotAck
        or Frame.PayloadOneofCase.TransferReady or Frame.PayloadOneofCase.ReadIndex or Frame.PayloadOneofCase.Prepared;

    // Everything synced was acknowledged, so this claims what follows it, too.
    private V1.Etag Unsynced(V1.Etag durable) => durable.FromWire() == journal.Durable.Etag ? journal.Last.Etag.ToWire() : durable;

    private Frame Released(HardState synced) => new()
    {
        Epoch = synced.PromisedEpoch,
        SenderId = synced.PromisedLeader,
        SenderIncarnation = synced.PromisedIncarnation,
        ReceiverId = replica.Id,
        Release = new Release(),
    };
}
