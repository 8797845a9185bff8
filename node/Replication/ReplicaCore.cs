using KvCluster.Internal.V1;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Elections;
using KvCluster.Replication.Following;
using KvCluster.Replication.Leading;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.Reconfiguration;
using KvCluster.Replication.State;

namespace KvCluster.Replication;

/// <summary>
/// One replica of one shard: the protocol as a pure state machine. <see cref="Step"/> takes an event and leaves effects. There is no I/O, clock or await,
/// and no randomness but the seed. Called by the shard's driver on the shard's writer executor; the contract between the two is that of <see cref="Effect"/>.
/// An exception means a bug and ends the replica.
/// </summary>
/// <remarks>
/// An event changes what is known; <see cref="Settle"/> then draws all conclusions in one fixed order. So a condition such as "the promise is synced" is
/// checked where it is needed, and no event has to know who waits for it. In comments of this project, R1 and the like are rules of INVARIANTS.md.
/// </remarks>
internal sealed class ReplicaCore
{
    // Each election takes the next epoch. An epoch this far beyond those seen was never assigned; accepting it could use up the epochs.
    private const ulong EpochStepMax = 1UL << 32;

    private readonly ReplicaContext _context;
    private readonly TailTruncation _truncation;
    private readonly Promises _promises;
    private readonly Follower _follower;
    private readonly Election _election;
    private readonly EpochFencing _fencing;
    private readonly Voter _voter;
    private readonly LeaderContact _contact;
    private readonly RecordAdoption _record;
    private readonly Leadership _leadership;
    private bool _stopped;

    /// <summary>Creates the core of a replica whose journal and control file are recovered.</summary>
    /// <param name="startup">Identity, hard state, and the coordinator's record as last seen.</param>
    /// <param name="journal">The replica's journal.</param>
    /// <param name="options">Times and windows.</param>
    public ReplicaCore(ReplicaStartup startup, IJournalView journal, ReplicationOptions options)
    {
        _context = new ReplicaContext(startup, journal, options);
        // A restarted replica does not know whether a leader is alive. A new shard has none.
        _contact = new LeaderContact(_context.EpochSeen == 0 ? long.MinValue / 2 : startup.NowUs);
        _truncation = new TailTruncation(_context);
        _leadership = new Leadership(_context);
        _promises = new Promises(_context);
        _follower = new Follower(_context, _truncation, _promises);
        _election = new Election(_context, _truncation, _promises, epoch => Obey(epoch, _context.Self, _context.Incarnation), _leadership.Begin);
        _record = new RecordAdoption(_context);
        _fencing = new EpochFencing(_context, _record, _leadership, _election, Obey, reason => StopLeading(reason));
        _voter = new Voter(_context, _contact, _promises, _election, _fencing, _follower, _truncation, Obey);
        _stopped = startup.Control.Removed;
        NextTickUs = startup.NowUs;
    }

    /// <summary>What the last <see cref="Step"/> asks the driver to do, in order. Valid until the next one.</summary>
    public IReadOnlyList<Effect> Effects => _context.Effects;

    /// <summary>When to step <see cref="Event.Tick"/>, in microseconds of the boot clock.</summary>
    public long NextTickUs { get; private set; }

    /// <summary>A linearizable read may be answered from a snapshot taken before this was read, if this covers the snapshot. Any thread.</summary>
    public ReadLease Lease => _leadership.Lease;

    /// <summary>When the lease ends.</summary>
    public long LeaseEndUs => Lease.EndUs;

    /// <summary>This leader has asked another replica to take over.</summary>
    public bool IsTransferring => Leader is { IsTransferring: true };

    /// <summary>
    /// This leader is quiescent: nothing was asked of it for some time, and it sends few heartbeats, so silence of its followers means little.
    /// </summary>
    public bool IsQuiescent => Leader is { IsQuiescent: true };

    /// <summary>Whether this replica leads an epoch, serving or not yet.</summary>
    public bool Leads => Leader is not null;

    /// <summary>The shard's record as this replica knows it.</summary>
    public ShardView View => _context.View;

    /// <summary>What this replica does now, for status and logs.</summary>
    public ReplicaRole Role => _stopped ? ReplicaRole.Stopped
        : Leader is { Phase: LeaderPhase.Serving or LeaderPhase.Transferring } ? ReplicaRole.Leader
        : Leader is not null || _election.IsCampaigning ? ReplicaRole.Candidate
        : _context.Recovering ? ReplicaRole.Recovering
        : _context.Counts ? ReplicaRole.Follower
        : ReplicaRole.Learner;

    /// <summary>In one of how many intervals a leader that is not quiescent sends heartbeats; 1 unless its node has many such leaders.</summary>
    public int HeartbeatsEvery
    {
        set => _context.HeartbeatsEvery = value;
    }

    /// <summary>In one of how many intervals this replica writes to its control file how far it is; 1 unless its node has many that do.</summary>
    public int ControlsEvery
    {
        set => _context.Control.Every = value;
    }

    /// <summary>This replica is farther than its control file says.</summary>
    public bool HasToWriteControl => _context.Control.IsBehind;

    /// <summary>How this replica's journal compares in speed with the others', leading and following.</summary>
    public JournalPace Pace => _context.Pace;

    /// <summary>Whether this replica serves as leader, or heard a leader within the longest election timeout. For status and metrics.</summary>
    public bool HasLeader(long nowUs) =>
        Leader is { IsServing: true } || (Leader is null && _contact.HasLeader(_context.Options, nowUs));

    /// <summary>The epoch that this replica obeys, or leads.</summary>
    public ulong Epoch => _context.Promised;

    /// <summary>The committed etag, as far as this replica knows.</summary>
    public Etag Committed => _context.Committed;

    /// <summary>
    /// The last time at which everything committed, as far as this replica could know, was committed here and is applied once the effects are performed. In
    /// microseconds of the boot clock; <see cref="long.MinValue"/> if never since its start.
    /// </summary>
    public long CurrentUs => Leader is { IsServing: true } ? Leader.CurrentUs : _follower.CurrentUs;

    /// <summary>Until then this replica neither campaigns nor prepares a higher epoch, in microseconds of the boot clock.</summary>
    public long GrantEndUs => _promises.GrantEndUs;

    /// <summary>The other replicas as this leader sees them, for status; empty while not leading.</summary>
    public IReadOnlyCollection<FollowerProgress> Followers => Leader?.Followers ?? [];

    /// <inheritdoc cref="FollowerProgress.FollowsClosely"/>
    public bool FollowsClosely(FollowerProgress follower) => follower.FollowsClosely(_context);

    /// <summary>This leader's last comparison of digests that found no difference; null if there was none in its epoch.</summary>
    public DigestsCompared? DigestsCompared => Leader?.DigestsCompared;

    /// <summary>This leader's last comparison of digests that found no difference; null also if a later one has found a difference.</summary>
    public DigestsCompared? DigestsAgree => Leader?.DigestsAgree;

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

        CheckJournal(_context.Journal.Last, _context.Journal.Durable);
        Handle(happened);
        Settle();
        _stopped |= _context.Effects.Any(effect => effect is Effect.Halt or Effect.Quarantine);
    }

    private Leader? Leader => _leadership.Leader;

    // All effects of the step before are performed.
    private void CheckJournal(in RecordRef last, in RecordRef durable)
    {
        Invariant.Check(durable.Etag <= last.Etag && _context.Committed <= last.Etag, $"The journal ends at {last.Name}; "
            + $"{durable.Name} is durable and {_context.Committed} committed.");
        Invariant.Check(last.Etag.Epoch <= _context.Promised, $"The journal ends at {last.Name}, but epoch {_context.Promised} is promised.");
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
            case Event.Truncated:
                OnTruncated();
                break;
            case Event.RecordAppended
                or Event.BodiesSent or Event.ReadArrived or Event.TransferAsked or Event.ReplicasAsked or Event.SnapshotOpened or Event.SnapshotLost:
                _leadership.Handle(happened);
                break;
            case Event.ShardRecordRead read:
                OnRecord(read.ReadId, read.Record, read.Revision);
                break;
            case Event.CompareAndSetDone done:
                _election.OnSetDone(done.SetId, done.Outcome);
                Leader?.OnSetDone(done.SetId, done.Outcome, done.Revision);
                break;
            case Event.FollowerReadArrived read:
                _follower.OnRead(read.ReadId, leads: Leader is not null);
                break;
            case Event.NodeSilent silent:
                OnNodeSilent(silent.Node);
                break;
            case Event.DiskHealth health:
                _context.DiskImpaired = health.Impaired;
                Leader?.LeaveImpaired();
                break;
            case Event.DigestTaken taken when _context.OwnDigest.TryEnd(taken.TakeId, taken.Digest) && Leader is null:
                _follower.OnDigestTaken();
                break;
            case Event.DigestsWanted:
                Leader?.WantDigests();
                break;
            case Event.SnapshotStored or Event.SnapshotVerified or Event.SnapshotFailed or Event.SnapshotInstalled:
                _follower.Snapshots.Handle(happened);
                break;
        }
    }

    // The order matters: promises before what they permit, changes of the journal before messages about it, the control file last.
    private void Settle()
    {
        _voter.Advance();
        _follower.ReplayParked();
        _truncation.Pump();
        _follower.Snapshots.Pump();
        _election.Advance(_follower.Snapshots.Installing);
        _promises.Answer(_truncation.Busy || _follower.Snapshots.Installing);
        Leader?.Advance();
        if (Leader is null)
            _follower.Acknowledge();
        var wanted = _context.Control.Wanted;
        Invariant.Check(
            Leader is null
                || (Leader.Epoch == wanted.PromisedEpoch && wanted.PromisedLeader == _context.Self && wanted.PromisedIncarnation == _context.Incarnation),
            $"This replica leads epoch {Leader?.Epoch}, but epoch {wanted.PromisedEpoch} is promised to replica {wanted.PromisedLeader}.");
        _leadership.PublishLease();
        _context.Control.Pump(_context.Effects, _context.NowUs);
        NextTickUs = _follower.HasWork ? _context.NowUs : Math.Max(_context.NowUs, NextDueUs());
    }

    private long NextDueUs()
    {
        var dueUs = Math.Min(_promises.DueUs, _context.Control.DueUs);
        dueUs = Math.Min(dueUs, _follower.DueUs);
        dueUs = Math.Min(dueUs, _election.DueUs(leading: Leader is not null));
        return Math.Min(dueUs, _leadership.DueUs);
    }

    // The node of a quiescent leader, or of a follower that such a leader waits for, may be gone. From here on the ordinary timeouts apply.
    private void OnNodeSilent(NodeId node)
    {
        Leader?.Asked();
        if (_context.View.NodeOf(_follower.Leader) == node && _contact.TryEndQuiescence())
            _election.RestartTimer();
    }

    private void OnTick()
    {
        _follower.OnTick();
        if (Leader?.OnTick() is { } reason)
            StopLeading(reason);
        if (_context.NowUs >= _leadership.SupersededDueUs)
            _election.CampaignWaived();
        _election.OnTick(leading: Leader is not null);
    }

    private void OnFrame(Frame frame)
    {
        if (frame.ShardId != _context.Shard || frame.ReceiverId != _context.Self || frame.SenderId == _context.Self)
            return;
        if (frame.Generation > _context.View.Record.Generation || !_context.View.Contains(frame.SenderId))
            _record.Ask();
        if (!_context.View.Contains(frame.SenderId) || (frame.Epoch > _context.EpochSeen && frame.Epoch - _context.EpochSeen > EpochStepMax))
            return;
        _context.Heard(frame.SenderId, frame.SenderIncarnation);
        if (frame.Epoch > _context.EpochSeen)
        {
            _context.EpochSeen = frame.Epoch;
            _contact.TryEndQuiescence();
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
                or Frame.PayloadOneofCase.TransferReady
                or Frame.PayloadOneofCase.ReadIndex or Frame.PayloadOneofCase.DigestReport or Frame.PayloadOneofCase.DigestDoubt:
                if (Leader?.Epoch == frame.Epoch)
                    Leader.OnFrame(frame);
                break;
            case Frame.PayloadOneofCase.PreVote:
                Leader?.Asked();
                _voter.OnPreVote(frame, leads: Leader is not null);
                break;
            case Frame.PayloadOneofCase.PreVoteAnswer:
                _election.OnPreVoteAnswer(frame);
                break;
            case Frame.PayloadOneofCase.Prepare:
                _voter.OnPrepare(frame);
                break;
            case Frame.PayloadOneofCase.Prepared:
                _election.OnPrepared(frame);
                break;
            case Frame.PayloadOneofCase.FetchTail:
                _voter.OnFetchTail(frame);
                break;
            case Frame.PayloadOneofCase.Tail:
                _election.OnTail(frame);
                break;
            case Frame.PayloadOneofCase.Fenced:
                _fencing.OnFenced(frame.Epoch);
                break;
        }
    }

    private void OnLeaderFrame(Frame frame)
    {
        if (!_fencing.TryObeyLeader(frame))
            return;
        // The leader of this epoch told this replica to campaign. Its frames that still arrive were sent before that.
        if (frame.Epoch == _election.LeavingEpoch)
            return;
        _contact.Heard(frame, _context.Options, _context.NowUs);
        _election.HeardLeader(_contact.QuiescentUs);
        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.TransferAsk:
                _follower.HearLeader(frame);
                _election.ReadForTransfer();
                break;
            case Frame.PayloadOneofCase.Release:
                _promises.Release(frame.Release.Round);
                if (frame.Release.Stand)
                    _election.CampaignForTransfer();
                break;
            default:
                _follower.OnLeaderFrame(frame, _election.IsCampaigning);
                break;
        }
    }

    // Promises an epoch to a leader. From here on nothing of a lower epoch is acknowledged, granted, served or committed.
    private void Obey(ulong epoch, ReplicaId leader, ulong incarnation)
    {
        Invariant.Check(epoch >= _context.Promised, $"Epoch {epoch} would be promised after {_context.Promised}.");
        if (Leader is not null)
            StopLeading($"epoch {epoch} is promised to replica {leader}", leader);
        _context.Control.Require(_context.Control.Wanted with { PromisedEpoch = epoch, PromisedLeader = leader, PromisedIncarnation = incarnation });
        _context.EpochSeen = Math.Max(_context.EpochSeen, epoch);
        _promises.PromiseRose();
        _follower.StartEpoch();
        _election.PromiseRose();
    }

    private void OnTruncated()
    {
        var (kept, epoch) = _truncation.Done();
        // A later leader may not have the record kept, so it is not known to be common.
        if (epoch != _context.Promised)
            return;
        _follower.OnTruncated(kept);
        _election.OnTruncated(kept);
    }

    private void OnRecord(long readId, ShardRecord? record, long revision)
    {
        var verdict = _record.Judge(readId, record, revision);
        if (verdict == RecordVerdict.Adopt)
            Adopt(record!, revision);
        else if (verdict == RecordVerdict.Removed)
            Remove();
        if (verdict is RecordVerdict.Doubtful or RecordVerdict.Removed)
            (record, revision) = (null, 0);
        _election.OnRecordRead(readId, record, revision);
        Leader?.OnRecordRead(readId, record, revision);
    }

    private void Adopt(ShardRecord record, long revision)
    {
        _context.AdoptView(record, revision);
        if (record.Epoch > _context.EpochSeen)
        {
            _context.EpochSeen = record.Epoch;
            _election.RestartTimer();
        }

        if (Leader is not null && !Leader.TryFollowRecord())
            StopLeading("the record names other voters");
    }

    private void Remove()
    {
        if (Leader is not null)
            StopLeading("this replica was removed");
        _context.Control.Require(_context.Control.Wanted with { Removed = true });
        _context.Log("the shard's record no longer names this replica; it stops permanently");
        _stopped = true;
    }

    private void StopLeading(string reason, ReplicaId successor = default)
    {
        _leadership.NoteShardTime();
        _leadership.End(reason, successor);
        _election.RestartTimer();
    }
}
