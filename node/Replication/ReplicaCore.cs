using KvCluster.Replication.Digests;
using KvCluster.Replication.Elections;
using KvCluster.Replication.Following;
using KvCluster.Replication.Leading;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication;

// Contract with the driver (the shard's replica in the node, and the simulator)
// -----------------------------------------------------------------------------
// One thread at a time. The driver calls Step(event, now), executes Effects from first to last, and may then call Step again. It never calls Step while
// effects of the last call are left. "At once" below means that the event is stepped after all effects of the running list, before any other event.
// `now` is the boot clock in microseconds and never goes back.
// The driver steps Tick first of all. After each Step it arranges to step Tick at NextTickUs, which may have moved either way.
//
//   effect               what the driver does                                              what it steps afterwards
//   Send                 passes the frame to the transport; never waits                    -
//   SendBodies           fills in bodies from the journal, durable or not, and sends;      append: BodiesSent, at once; tail: -
//                        with no bodies it sends no append, but it does send a tail
//   WriteControl         writes and syncs; other effects continue meanwhile                ControlWritten, when synced
//   AppendBodies         appends Bodies[First..] before anything else reads the journal;   Durable, whenever Durable rises
//                        a body that does not chain is a bug and fails the replica
//   Cut                  truncates; Last is the record kept when the effect returns        CutDone, when the new header is synced
//   Commit               store.Commit; answers waiting callers in etag order               -
//   ReadRecord           sends a linearizable read now                                     ShardRecordRead with the id, also on failure
//   CompareAndSet        makes one attempt and never repeats it by itself                  CompareAndSetDone with the id
//   StartLeading         store.Lead, AppendEpochOpen                                       RecordAppended with that record, at once
//   Serving(true)        drains the write queue from now on; for each batch:               RecordAppended, at once
//   Serving(false)       takes no more writes; always comes before StopLeading             -
//   StopLeading          store.StopLeading; the tail becomes prepared records again        -
//   ReadsConfirmed       answers reads of this id and below from a snapshot opened now     -
//   ReadsRefused         answers them with "not leader"                                    -
//   ReadIndexKnown       answers follower reads of this id and below once it has applied   -
//                        the given etag
//   ReadIndexRefused     refuses them                                                      -
//   LeaderKnown          publishes the route                                               -
//   RecordAdopted        publishes the route; the core owns the record                     -
//   OrderEnded           tells whoever gave the order                                      -
//   OpenSnapshot         pins the newest checkpoint and its log position                   SnapshotOpened; SnapshotLost, if the pin is revoked
//   SendSnapshotChunk    reads and verifies the bytes, sends them; damage fails the        -
//                        replica
//   CloseSnapshot        unpins                                                            -
//   CheckPages           reads all pages of this replica's trees; damage fails the replica -
//   StoreSnapshotChunk   writes beside the live state                                      SnapshotStored, when written; or SnapshotFailed
//   VerifySnapshot       verifies and syncs all of it, beside the live state               SnapshotVerified, repeatedly; or SnapshotFailed
//   DropSnapshot         removes what is stored of a snapshot                              -
//   InstallSnapshot      switches it in, with the given control file                       SnapshotInstalled
//   TakeDigest           pins the published state, computes its digest in the background   DigestTaken
//   DropDigest           unpins it                                                         -
//   Alarm, Log           reports                                                           -
//   Halt                 fails the replica, keeps the reason; steps nothing any more       -
//   Quarantine           the same, and the replica is to be rebuilt from its peers         -
//
// While leading, Durable is stepped for the leader's own records as for a follower's. Lease may be read on any thread: a read takes its snapshot first
// and then asks whether the lease covers it. Writes while Serving need no lease. Failed conditions do (MayAnswerReads makes the same comparison); if it is
// false, the driver steps ReadArrived and answers them when that read is confirmed.

/// <summary>
/// One replica of one shard: the protocol as a pure state machine. <see cref="Step"/> takes an event and leaves effects. There is no I/O, clock or await,
/// and no randomness but the seed. Called by the shard's driver on the shard's writer executor. An exception means a bug and ends the replica.
/// </summary>
/// <remarks>
/// An event changes what is known; <see cref="Settle"/> then draws all conclusions in one fixed order. So a condition such as "the promise is synced" is
/// checked where it is needed, and no event has to know who waits for it.
/// </remarks>
internal sealed class ReplicaCore
{
    // A larger value from a leader is capped at this, because it would keep every follower from campaigning.
    private const ulong QuiescentUsMax = 60_000_000;

    // Each election takes the next epoch. An epoch this far beyond those seen was never assigned; accepting it could use up the epochs.
    private const ulong EpochStepMax = 1UL << 32;

    private readonly ReplicaContext _context;
    private readonly TailCut _cut;
    private readonly Promises _promises;
    private readonly Follower _follower;
    private readonly Election _election;
    private readonly FollowerReads _followerReads;
    private readonly DigestAnswers _digests;
    private Leader? _leader;
    private long _heardLeaderUs;
    private long _leaderQuiescentUs;
    private long _recordAskedUs = long.MinValue / 2;
    private Lease _lease = Lease.None;
    private long _disownedAt = -1;
    private bool _stopped;

    /// <summary>Creates the core of a replica whose journal and control file are recovered.</summary>
    /// <param name="startup">Identity, hard state, and the coordinator's record as last seen.</param>
    /// <param name="journal">The replica's journal.</param>
    /// <param name="options">Times and windows.</param>
    public ReplicaCore(ReplicaStartup startup, IJournalView journal, ReplicationOptions options)
    {
        _context = new ReplicaContext(startup, journal, options);
        var control = startup.Control;
        // At start the promise is at least the epoch of the last record. The shard's record tells who led it.
        if (journal.Last.Etag.Epoch > control.PromisedEpoch)
            _context.Control.Require(control with { PromisedEpoch = journal.Last.Etag.Epoch, PromisedLeader = 0, PromisedIncarnation = 0 });
        _context.Recovering = journal.Last.Etag < Etag.Max(control.Committed, control.Acknowledged);
        _context.EpochSeen = Math.Max(_context.Promised, startup.Record.Epoch);
        // A restarted replica does not know whether a leader is alive. A new shard has none.
        _heardLeaderUs = _context.EpochSeen == 0 ? long.MinValue / 2 : startup.NowUs;
        _cut = new TailCut(_context);
        _promises = new Promises(_context);
        _follower = new Follower(_context, _cut);
        _election = new Election(_context, _cut, _promises, epoch => Obey(epoch, _context.Self, _context.Incarnation), StartLeading);
        _followerReads = new FollowerReads(_context);
        _digests = new DigestAnswers(_context);
        _stopped = control.Removed;
        NextTickUs = startup.NowUs;
    }

    /// <summary>What the last <see cref="Step"/> asks the driver to do, in order. Valid until the next one.</summary>
    public IReadOnlyList<Effect> Effects => _context.Effects;

    /// <summary>When to step <see cref="Event.Tick"/>, in microseconds of the boot clock.</summary>
    public long NextTickUs { get; private set; }

    /// <summary>A linearizable read may be answered from a snapshot taken before this was read, if this covers the snapshot. Any thread.</summary>
    public Lease Lease => Volatile.Read(ref _lease);

    /// <summary>When the lease ends.</summary>
    public long LeaseEndUs => Lease.EndUs;

    /// <summary>This leader has asked another replica to take over.</summary>
    public bool MayHandOver => _leader is { MayHandOver: true };

    /// <summary>
    /// This leader is quiescent: nothing was asked of it for some time, and it sends few heartbeats, so silence of its followers means little.
    /// </summary>
    public bool IsQuiescent => _leader is { IsQuiescent: true };

    /// <summary>What this replica does now, for status and logs.</summary>
    public ReplicaRole Role => _stopped ? ReplicaRole.Stopped
        : _leader is { Serving: true } or { IsTransferring: true } ? ReplicaRole.Leader
        : _leader is not null || _election.IsCampaigning ? ReplicaRole.Candidate
        : _context.Recovering ? ReplicaRole.Recovering
        : _context.Counts ? ReplicaRole.Follower
        : ReplicaRole.Learner;

    /// <summary>How this replica's journal compares in speed with the others', leading and following.</summary>
    public JournalPace Pace => _context.Pace;

    /// <summary>Whether it serves as leader, or heard a leader within the longest election timeout. For status and metrics.</summary>
    public bool HasLeader(long nowUs) =>
        _leader is { Serving: true } || (_leader is null && nowUs - _heardLeaderUs < _context.Options.TimeoutGreatestUs + _leaderQuiescentUs);

    /// <summary>The epoch that this replica obeys, or leads.</summary>
    public ulong Epoch => _context.Promised;

    /// <summary>The committed etag, as far as this replica knows.</summary>
    public Etag Committed => _context.Committed;

    /// <summary>
    /// The last time at which everything committed, as far as this replica could know, was committed here and is applied once the effects are performed. In
    /// microseconds of the boot clock; <see cref="long.MinValue"/> if never since its start.
    /// </summary>
    public long CurrentUs => _leader is { Serving: true } ? _leader.CurrentUs : _follower.CurrentUs;

    /// <summary>Until then this replica neither campaigns nor prepares a higher epoch, in microseconds of the boot clock.</summary>
    public long GrantEndUs => _promises.GrantEndUs;

    /// <summary>The other replicas as this leader sees them, for status; empty while not leading.</summary>
    public IReadOnlyCollection<FollowerProgress> Followers => _leader?.Followers ?? [];

    /// <summary>This leader's last comparison of digests that found no difference; null if there was none in its epoch.</summary>
    public DigestsCompared? DigestsCompared => _leader?.DigestsCompared;

    /// <summary>Handles one event; <see cref="Effects"/> then holds what the driver must do.</summary>
    /// <param name="happened">What happened.</param>
    /// <param name="nowUs">The boot clock.</param>
    public void Step(Event happened, long nowUs)
    {
        Invariant.Check(nowUs >= _context.NowUs, $"The boot clock went back from {_context.NowUs} to {nowUs}.");
        _context.Effects.Clear();
        _context.NowUs = nowUs;
        if (_stopped)
        {
            // The last hard state, perhaps a removal, is still written. Nothing else happens.
            if (happened is Event.ControlWritten last)
                _context.Control.Written(last.Control);
            _context.Control.Pump(_context.Effects, nowUs);
            NextTickUs = long.MaxValue;
            return;
        }

        Handle(happened);
        Settle();
        _stopped |= _context.Effects.Any(effect => effect is Effect.Halt or Effect.Quarantine);
    }

    private void Handle(Event happened)
    {
        switch (happened)
        {
            case Event.Tick:
                OnTick();
                break;
            case Event.FrameReceived received:
                OnFrame(received.Frame);
                break;
            case Event.Durable:
                break;
            case Event.ControlWritten written:
                _context.Control.Written(written.Control);
                break;
            case Event.CutDone:
                OnCutDone();
                break;
            case Event.RecordAppended appended:
                Invariant.Check(_leader is not null, $"Record {appended.Record.Name} was appended while this replica does not lead.");
                _leader.OnAppended(appended.Record);
                break;
            case Event.BodiesSent sent when _leader?.Epoch == sent.Epoch:
                _leader.OnBodiesSent(sent.Replica, sent.Last, sent.Bytes);
                break;
            case Event.ShardRecordRead read:
                OnRecord(read.ReadId, read.Record, read.Revision);
                break;
            case Event.CompareAndSetDone done:
                _election.OnSetDone(done.SetId, done.Outcome);
                _leader?.OnSetDone(done.SetId, done.Outcome, done.Revision);
                break;
            case Event.ReadArrived read when _leader is { Serving: true }:
                _leader.OnRead(read.ReadId);
                break;
            case Event.ReadArrived read:
                _context.Emit(new Effect.ReadsRefused(read.ReadId));
                break;
            case Event.FollowerReadArrived read:
                _followerReads.Add(read.ReadId, _leader is null ? _follower.Leader : 0);
                break;
            case Event.NodeSilent silent:
                OnNodeSilent(silent.Node);
                break;
            case Event.DiskHealth health:
                _context.DiskImpaired = health.Impaired;
                _leader?.LeaveImpaired();
                break;
            case Event.TransferAsked asked when _leader is not null:
                _leader.Transfer(asked.OrderId, asked.Replica);
                break;
            case Event.TransferAsked asked:
                _context.Emit(new Effect.OrderEnded(asked.OrderId, false, "this replica does not lead"));
                break;
            case Event.ReplicasAsked asked when _leader is not null:
                _leader.ChangeReplicas(asked.OrderId, asked.Change);
                break;
            case Event.ReplicasAsked asked:
                _context.Emit(new Effect.OrderEnded(asked.OrderId, false, "this replica does not lead"));
                break;
            case Event.DigestTaken taken when _context.OwnDigest.TryEnd(taken.TakeId, taken.Digest) && _leader is null:
                _digests.Report(_follower.Leader);
                break;
            case Event.SnapshotOpened opened when _leader is not null:
                _leader.OnSnapshotOpened(opened.Replica, opened.Covers, opened.BytesTotal);
                break;
            case Event.SnapshotOpened opened:
                _context.Emit(new Effect.CloseSnapshot(opened.Replica));
                break;
            case Event.SnapshotLost lost:
                _leader?.OnSnapshotLost(lost.Replica, lost.Covers, lost.Reason);
                break;
            case Event.SnapshotStored stored:
                _follower.OnSnapshotStored(stored.Covers, stored.BytesStored);
                break;
            case Event.SnapshotVerified verified:
                _follower.OnSnapshotVerified(verified.Covers, verified.BytesVerified, verified.IsWhole);
                break;
            case Event.SnapshotFailed failed:
                _follower.OnSnapshotFailed(failed.Covers, failed.Fault, failed.Reason);
                break;
            case Event.SnapshotInstalled installed:
                _follower.OnSnapshotInstalled(installed.Covers);
                break;
        }
    }

    // The order matters: promises before what they permit, changes of the journal before messages about it, the control file last.
    private void Settle()
    {
        if (_promises.TryRelease(out var held))
            OnPrepare(held);
        _follower.ReplayParked();
        _cut.Pump();
        _follower.PumpInstall();
        _election.Advance(_follower.Installing);
        _promises.Answer(_cut.Busy || _follower.Installing);
        _leader?.Advance();
        if (_leader is null)
            _follower.Acknowledge();
        PublishLease();
        _context.Control.Pump(_context.Effects, _context.NowUs);
        NextTickUs = _follower.HasWork ? _context.NowUs : Math.Max(_context.NowUs, NextDueUs());
    }

    private void PublishLease()
    {
        var endUs = _leader?.LeaseEndUs ?? 0;
        if (endUs != _lease.EndUs)
            Volatile.Write(ref _lease, endUs == 0 ? Lease.None : new Lease(_leader!.Epoch, endUs));
    }

    private long NextDueUs()
    {
        var dueUs = Math.Min(_promises.DueUs, _context.Control.DueUs);
        dueUs = Math.Min(dueUs, _followerReads.DueUs);
        dueUs = Math.Min(dueUs, _election.DueUs(leading: _leader is not null));
        if (_leader is null)
            return dueUs;
        dueUs = Math.Min(dueUs, _leader.DueUs);
        return SupersededDueUs > _context.NowUs ? Math.Min(dueUs, SupersededDueUs) : dueUs;
    }

    private long SupersededDueUs => _leader is null || _leader.SupersededUs == long.MaxValue
        ? long.MaxValue
        : _leader.SupersededUs + _context.Options.TimeoutGreatestUs;

    // The node of a quiescent leader, or of a follower that such a leader waits for, may be gone. From here on the ordinary timeouts count.
    private void OnNodeSilent(uint node)
    {
        _leader?.Asked();
        if (_leaderQuiescentUs == 0 || _context.View.NodeOf(_follower.Leader) != node)
            return;
        _leaderQuiescentUs = 0;
        _election.RestartTimer();
    }

    private void OnTick()
    {
        _followerReads.OnTick();
        if (_leader?.OnTick() is { } reason)
            StopLeading(reason);
        if (_context.NowUs >= SupersededDueUs)
            _election.CampaignWaived();
        _election.OnTick(leading: _leader is not null);
    }

    private void OnFrame(Frame frame)
    {
        if (frame.Shard != _context.Shard || frame.Receiver != _context.Self || frame.Sender == _context.Self)
            return;
        if (frame.Generation > _context.View.Record.Generation || !_context.View.Contains(frame.Sender))
            AskForRecord();
        if (!_context.View.Contains(frame.Sender) || (frame.Epoch > _context.EpochSeen && frame.Epoch - _context.EpochSeen > EpochStepMax))
            return;
        _context.Heard(frame.Sender, frame.SenderIncarnation);
        if (frame.Epoch > _context.EpochSeen)
        {
            _context.EpochSeen = frame.Epoch;
            _leaderQuiescentUs = 0;
            _election.RestartTimer();
        }

        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.Append or Frame.PayloadOneofCase.Probe or Frame.PayloadOneofCase.Heartbeat or Frame.PayloadOneofCase.SnapshotChunk
                or Frame.PayloadOneofCase.TransferAsk or Frame.PayloadOneofCase.Release or Frame.PayloadOneofCase.ReadIndexAnswer
                or Frame.PayloadOneofCase.DigestAsk or Frame.PayloadOneofCase.DigestDiffers:
                OnLeaderFrame(frame);
                break;
            case Frame.PayloadOneofCase.Ack or Frame.PayloadOneofCase.HeartbeatAck or Frame.PayloadOneofCase.Match or Frame.PayloadOneofCase.SnapshotAck
                or Frame.PayloadOneofCase.TransferReady or Frame.PayloadOneofCase.ReadIndex or Frame.PayloadOneofCase.DigestReport or Frame.PayloadOneofCase.DigestDoubt:
                if (_leader?.Epoch == frame.Epoch)
                    _leader.OnFrame(frame);
                break;
            case Frame.PayloadOneofCase.PreVote:
                OnPreVote(frame);
                break;
            case Frame.PayloadOneofCase.PreVoteAnswer:
                _election.OnPreVoteAnswer(frame);
                break;
            case Frame.PayloadOneofCase.Prepare:
                OnPrepare(frame);
                break;
            case Frame.PayloadOneofCase.Prepared:
                _election.OnPrepared(frame);
                break;
            case Frame.PayloadOneofCase.FetchTail:
                OnFetchTail(frame);
                break;
            case Frame.PayloadOneofCase.Tail:
                _election.OnTail(frame);
                break;
            case Frame.PayloadOneofCase.Fenced:
                if (_leader is not null && frame.Epoch > _leader.Epoch)
                    StopLeading($"fenced by epoch {frame.Epoch}");
                _election.Fenced(frame.Epoch);
                break;
        }
    }

    private void OnLeaderFrame(Frame frame)
    {
        if (!TryObeyLeader(frame))
            return;
        // That leader told this replica to campaign. Its frames still under way are from before.
        if (frame.Epoch == _election.LeavingEpoch)
            return;
        _heardLeaderUs = _context.NowUs;
        // Three of its heartbeats, because its stream may drop one. If its node is gone, NodeSilent says so sooner.
        _leaderQuiescentUs = frame.Heartbeat is { } beat ? 3 * (long)Math.Min(beat.RestUs, QuiescentUsMax) : 0;
        _election.HeardLeader(_leaderQuiescentUs);
        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.TransferAsk:
                _follower.HearLeader(frame);
                _election.ReadForTransfer();
                return;
            case Frame.PayloadOneofCase.ReadIndexAnswer:
                // The committed etag first, so that most reads can be answered at once and not with the next heartbeat.
                _follower.LearnCommitted(frame, frame.ReadIndexAnswer.Committed.FromWire());
                _followerReads.OnAnswer(frame);
                return;
            case Frame.PayloadOneofCase.DigestAsk:
                _follower.HearLeader(frame);
                if (_follower.MayAnswer)
                    _digests.OnAsk(frame);
                return;
            case Frame.PayloadOneofCase.DigestDiffers:
                _digests.OnDiffers(frame.DigestDiffers);
                return;
            case Frame.PayloadOneofCase.Release:
                _promises.Release(frame.Release.Round);
                if (frame.Release.Stand)
                    _election.CampaignForTransfer();
                return;
        }

        if (frame.PayloadCase != Frame.PayloadOneofCase.Heartbeat)
        {
            _follower.OnLeaderFrame(frame);
            return;
        }

        _follower.HearLeader(frame);
        if (_follower.MayAnswer)
            _follower.AnswerHeartbeat(frame, _promises.TryGrant(frame.Heartbeat, _election.IsCampaigning));
        _follower.LearnCommitted(frame, frame.Heartbeat.Committed.FromWire());
        _digests.OnHeartbeat(frame);
    }

    // A frame of a higher epoch is accepted at once, even while a grant runs: a majority prepared its leader, so the older leader has no lease.
    private bool TryObeyLeader(Frame frame)
    {
        var control = _context.Control.Wanted;
        if (frame.Epoch < control.PromisedEpoch)
        {
            Fence(frame.Sender);
            return false;
        }

        if (frame.Epoch > control.PromisedEpoch)
        {
            Obey(frame.Epoch, frame.Sender, frame.SenderIncarnation);
            return true;
        }

        if (control.PromisedLeader != 0)
            return control.PromisedLeader == frame.Sender && control.PromisedIncarnation == frame.SenderIncarnation;
        if (!_context.View.Names(frame.Epoch, frame.Sender, frame.SenderIncarnation))
        {
            AskForRecord();
            return false;
        }

        Obey(frame.Epoch, frame.Sender, frame.SenderIncarnation);
        return true;
    }

    // Promises an epoch to a leader. From here on nothing of a lower epoch is acknowledged, granted, served or committed.
    private void Obey(ulong epoch, ulong leader, ulong incarnation)
    {
        Invariant.Check(epoch >= _context.Promised, $"Epoch {epoch} would be promised after {_context.Promised}.");
        if (_leader is not null)
            StopLeading($"epoch {epoch} is promised to replica {leader:x}", leader);
        _context.Control.Require(_context.Control.Wanted with { PromisedEpoch = epoch, PromisedLeader = leader, PromisedIncarnation = incarnation });
        _context.EpochSeen = Math.Max(_context.EpochSeen, epoch);
        _promises.PromiseRose();
        _follower.StartEpoch();
        _followerReads.RefuseAll();
        _election.PromiseRose();
    }

    private void OnPreVote(Frame frame)
    {
        _leader?.Asked();
        var silent = _leader is null && _context.NowUs - _heardLeaderUs >= _context.Options.TimeoutLeastUs + _leaderQuiescentUs;
        var granted = silent && _context.Counts;
        if (granted)
            _election.RestartTimer();
        var answer = _context.FrameTo(frame.Sender, Math.Max(_context.EpochSeen, _context.Promised));
        answer.PreVoteAnswer = new PreVoteAnswer { Number = frame.PreVote.Number, Granted = granted };
        _context.Send(answer);
    }

    private void OnPrepare(Frame frame)
    {
        var control = _context.Control.Wanted;
        if (frame.Generation < Math.Max(control.Generation, _context.View.Record.Generation))
            return;
        if (frame.Epoch < control.PromisedEpoch)
        {
            Fence(frame.Sender);
            return;
        }

        _election.RestartTimer();
        if (frame.Epoch == control.PromisedEpoch)
        {
            // The same answer again. Nothing was acknowledged in a lower epoch since the first time.
            if (control.PromisedLeader == frame.Sender && control.PromisedIncarnation == frame.SenderIncarnation)
                _promises.OweAnswer(frame.Sender);
            return;
        }

        if (!_promises.Free)
        {
            _promises.Hold(frame);
            return;
        }

        Obey(frame.Epoch, frame.Sender, frame.SenderIncarnation);
        _promises.OweAnswer(frame.Sender);
    }

    private void OnFetchTail(Frame frame)
    {
        var control = _context.Control.Synced;
        if (frame.Epoch != _context.Promised || !_context.Control.PromiseSynced || control.PromisedLeader != frame.Sender
            || control.PromisedIncarnation != frame.SenderIncarnation || _cut.Busy || _follower.Installing)
            return;
        var after = frame.FetchTail.After.FromWire();
        var answer = _context.FrameTo(frame.Sender, frame.Epoch);
        if (TailMatch.Has(_context.Journal, after))
        {
            answer.Tail = new Tail { Found = true, After = after.ToWire() };
            _context.Emit(new Effect.SendBodies(_context.View.NodeOf(frame.Sender), answer, after, _context.Options.FrameBytes));
            return;
        }

        var found = _context.Journal.TryFindAtOrBefore(after.Etag, out var own);
        answer.Tail = new Tail { After = own.Name.ToWire(), Gone = !found };
        _context.Send(answer);
    }

    private void Fence(ulong sender)
    {
        var frame = _context.FrameTo(sender, _context.Promised);
        frame.Fenced = new Fenced();
        _context.Send(frame);
    }

    private void OnCutDone()
    {
        var (kept, epoch) = _cut.Done();
        // A later leader may not have the record kept, so it is not known to be common.
        if (!_context.Options.Rules.IsCommon(epoch, _context.Promised))
            return;
        _follower.OnCutDone(kept);
        _election.OnCutDone(kept);
    }

    private void OnRecord(long readId, ShardRecord? record, long revision)
    {
        if (!_context.TryTrust(readId, record, revision))
        {
            Answer(readId, null, 0);
            return;
        }

        if (record is not null && revision > _context.View.Revision && !TryAdopt(record, revision, fresh: readId != 0))
        {
            Answer(readId, null, 0);
            return;
        }

        if (!_stopped)
            Answer(readId, record, revision);
    }

    private void Answer(long readId, ShardRecord? record, long revision)
    {
        _election.OnRecordRead(readId, record, revision);
        _leader?.OnRecordRead(readId, record, revision);
    }

    // False: nothing may be concluded from this record.
    private bool TryAdopt(ShardRecord record, long revision, bool fresh)
    {
        // Generation and epoch never decrease with the revision. If they did, the coordinator was restored from an old copy, or this is not its record. A
        // fresh read decides, and raises the alarm.
        if (record.Generation < _context.View.Record.Generation || record.Epoch < _context.View.Record.Epoch)
        {
            if (!fresh)
                _context.ReadRecord(_context.NextRequestId());
            return false;
        }

        if (record.Replicas.All(replica => replica.Replica != _context.Self))
        {
            // A watch may be late or early. Only a fresh read removes a replica, and only if the record lists it as removed.
            if (!fresh)
                _context.ReadRecord(_context.NextRequestId());
            else if (record.Removed.Contains(_context.Self))
                Remove();
            else
                Disowned(revision);
            return false;
        }

        _context.AdoptView(record, revision);
        if (record.Epoch > _context.EpochSeen)
        {
            _context.EpochSeen = record.Epoch;
            _election.RestartTimer();
        }

        if (_leader is not null && !_leader.TryFollowRecord())
            StopLeading("the record names other voters");
        return true;
    }

    // This happens, for example, to a replica that was added after the coordinator's backup was taken. It may have acknowledged what nobody else has.
    private void Disowned(long revision)
    {
        if (_disownedAt == revision)
            return;
        _disownedAt = revision;
        _context.Emit(new Effect.Alarm(
            $"the shard's record, at revision {revision}, names this replica neither as a replica of the shard nor as one that was removed. The coordinator may have been restored from an old copy. "
            + "The replica continues with the record that it knew; nothing is removed. Repair the record"));
    }

    private void Remove()
    {
        if (_leader is not null)
            StopLeading("this replica was removed");
        _context.Control.Require(_context.Control.Wanted with { Removed = true });
        _context.Log("the shard's record no longer names this replica; it stops permanently");
        _stopped = true;
    }

    private void AskForRecord()
    {
        if (_context.NowUs - _recordAskedUs < _context.Options.CoordinatorRetryUs)
            return;
        _recordAskedUs = _context.NowUs;
        _context.ReadRecord(_context.NextRequestId());
    }

    private void StartLeading(ulong epoch, Quorum quorum)
    {
        _leader = new Leader(_context, epoch, quorum);
        _context.Emit(new Effect.StartLeading(epoch));
    }

    private void StopLeading(string reason, ulong successor = 0)
    {
        // Before anything else, for readers on other threads.
        Volatile.Write(ref _lease, Lease.None);
        _leader!.Stop(reason, successor);
        _leader = null;
        _context.Emit(new Effect.LeaderKnown(_context.Promised, 0, 0));
        _election.RestartTimer();
    }
}
