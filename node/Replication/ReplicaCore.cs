namespace KvCluster.Replication;

// The contract with the driver (the shard's replica in the node, and the simulator)
// ---------------------------------------------------------------------------------
// One thread at a time. The driver calls Step(event, now), then executes Effects from first to last, then may call Step again; it never
// calls Step while effects of the last one are left, except where an effect below says "step at once": that event is handed in after
// all effects of the running list are executed, before any other event. `now` is the boot clock in microseconds and never goes back.
// First of all the driver steps Tick. After each Step it arranges to step Tick at NextTickUs (which may have moved either way).
//
//   effect               what the driver does                                              what it steps afterwards
//   Send                 hands the frame to the transport; never waits                     -
//   SendBodies           fills in bodies from the journal (also not yet durable ones),     append: BodiesSent, at once; tail: -
//                        sends; nothing follows: no append, but a tail is sent without
//   WriteControl         writes and syncs, other effects go on meanwhile                   ControlWritten, when synced
//   AppendBodies         appends Bodies[First..] before anything else reads the journal;   Durable, whenever Durable rises
//                        a body that does not chain is a bug: fail the replica
//   Cut                  cuts; Last is the record kept as soon as the effect returns       CutDone, when the new header is synced
//   Commit               store.Commit; answers waiting callers in etag order               -
//   ReadRecord           a linearizable read sent now                                      ShardRecordRead with the id, also on failure
//   CompareAndSet        one attempt; never repeats it by itself                           CompareAndSetDone with the id
//   StartLeading         store.Lead, AppendEpochOpen                                       RecordAppended with that record, at once
//   Serving(true)        drains the queue of writes from now on, each batch:               RecordAppended, at once
//   Serving(false)       takes no more writes; always before StopLeading
//   StopLeading          store.StopLeading; the tail becomes prepared records again        -
//   ReadsConfirmed       answers reads of this id and below from a snapshot opened now     -
//   ReadsRefused         answers them "not leader"                                         -
//   LeaderKnown          publishes the route                                               -
//   OpenSnapshot         pins the newest checkpoint and its journal position               SnapshotOpened
//   SendSnapshotChunk    reads the bytes, sends                                            -
//   CloseSnapshot        unpins                                                            -
//   StoreSnapshotChunk   writes beside the live state                                      SnapshotStored, when written
//   InstallSnapshot      syncs all, switches in, with the control file given               SnapshotInstalled
//   Alarm, Log           tells                                                             -
//   Halt                 fails the replica, keeps the reason; steps nothing any more       -
//
// While leading, Durable is stepped for the leader's own records as for a follower's. LeaseEndUs may be read on any thread: a read takes its
// snapshot first and then compares the clock with it. Writes while Serving need no lease; failed conditions do (MayAnswerReads: the
// same comparison; false: step ReadArrived and answer them on its confirmation).

/// <summary>
/// One replica of one shard: the protocol as a pure state machine. <see cref="Step"/> takes an event and leaves effects; no I/O, no clock, no
/// await, no randomness but the seed. Called by the shard's driver on the shard's writer executor; an exception means a bug and ends the replica.
/// </summary>
internal sealed class ReplicaCore
{
    private readonly List<Effect> _effects = [];

    /// <summary>What the last <see cref="Step"/> asks for, in order. Valid until the next one.</summary>
    public IReadOnlyList<Effect> Effects => _effects;

    /// <summary>When to step <see cref="Event.Tick"/>, in microseconds of the boot clock.</summary>
    public long NextTickUs { get; private set; }

    /// <summary>Linearizable reads may be answered from a snapshot taken before, while the boot clock is below this. Any thread.</summary>
    public long LeaseEndUs => 0;

    /// <summary>Creates the core of a replica whose journal and control file are recovered.</summary>
    /// <param name="startup">Identity, promises and what the coordinator's record said.</param>
    /// <param name="journal">The replica's journal.</param>
    /// <param name="options">Times and windows.</param>
    public ReplicaCore(ReplicaStartup startup, IJournalView journal, ReplicationOptions options)
    {
        Startup = startup;
        Journal = journal;
        Options = options;
    }

    /// <summary>Handles one event; <see cref="Effects"/> then holds what to do.</summary>
    public void Step(Event happened, long nowUs)
    {
        _effects.Clear();
        NextTickUs = nowUs + Options.HeartbeatIntervalUs;
    }

    public ReplicaStartup Startup { get; }

    public IJournalView Journal { get; }

    public ReplicationOptions Options { get; }
}
