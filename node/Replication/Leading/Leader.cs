using KvCluster.Internal.V1;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.Reconfiguration;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>The life of a leadership. It only goes forward.</summary>
internal enum LeaderPhase
{
    /// <summary>The epoch is won and prepared; its first record is not appended yet.</summary>
    Prepared,

    /// <summary>The epoch-open record is appended and not committed yet.</summary>
    Opening,

    /// <summary>Requests are served.</summary>
    Serving,

    /// <summary>Nothing is served any more in this epoch, because its leadership is being transferred.</summary>
    Transferring,

    /// <summary>Over for good.</summary>
    Ended,
}

/// <summary>
/// One epoch led by this process, from its epoch-open record to its end. Combines the leader's duties: committing, heartbeats, shipping of the journal,
/// reads, transfers, changes of the voters, comparing of digests. An epoch is never led twice; stopping is final. Called within the core's steps.
/// </summary>
internal sealed class Leader
{
    private readonly ReplicaContext _context;
    private readonly ReadRounds _rounds;
    private readonly JournalShipping _shipping;
    private readonly DigestComparison _digests;
    private readonly ProgressTracker _tracker;
    private readonly CommitRule _commit;
    private readonly Heartbeats _heartbeats;
    private readonly ReadIndexes _readIndexes;
    private readonly Succession _succession;
    private Membership? _membership;

    /// <summary>Created when the epoch is won and prepared; <see cref="OnAppended"/> with the epoch-open record follows.</summary>
    public Leader(ReplicaContext context, ulong epoch, Quorum quorum)
    {
        Invariant.Check(epoch == context.Promised, $"Epoch {epoch} is to be led, but epoch {context.Promised} is promised.");
        _context = context;
        Epoch = epoch;
        _rounds = new ReadRounds(context.Options.RoundsKept);
        _shipping = new JournalShipping(context, epoch);
        _digests = new DigestComparison(context, epoch, _shipping.FrameTo);
        _tracker = new ProgressTracker(context, quorum, _digests, _rounds);
        _commit = new CommitRule(context, epoch, _tracker);
        _heartbeats = new Heartbeats(context, _rounds, _tracker, _shipping);
        _readIndexes = new ReadIndexes(context, _rounds, _tracker, _shipping);
        _succession = new Succession(context, epoch, _tracker, _heartbeats);
    }

    public ulong Epoch { get; }

    public LeaderPhase Phase { get; private set; }

    /// <summary>Whether requests are served. That begins when the epoch-open record is committed.</summary>
    public bool IsServing => Phase == LeaderPhase.Serving;

    /// <summary>A transfer has begun. It may still fail, and this replica then continues to lead.</summary>
    public bool IsTransferring => _succession.IsTransferring;

    /// <summary>Nothing was asked of it for some time, so it sends few heartbeats and has no lease.</summary>
    public bool IsQuiescent => _heartbeats.Quiescence.IsQuiescent;

    /// <summary>When the record first named a higher epoch; <see cref="long.MaxValue"/> if never.</summary>
    public long SupersededUs { get; private set; } = long.MaxValue;

    /// <summary>Until this time of this replica's clock reads may be answered under the lease.</summary>
    public long LeaseEndUs => IsServing ? _tracker.GrantEndUs : 0;

    /// <summary>
    /// The latest time at which, as far as this leader knows, nobody else can have committed anything: the present while the lease lasts, then the lease's
    /// end; or the send time of the newest round that a majority answered, if later. A quiescent leader learns only the latter. <see cref="long.MinValue"/>
    /// if it does not serve.
    /// </summary>
    public long CurrentUs => !IsServing ? long.MinValue
        : Math.Max(Math.Min(_context.NowUs, LeaseEndUs), _rounds.TryGetSentUs(_tracker.Round, out var sentUs) ? sentUs : long.MinValue);

    /// <summary>All other replicas of the shard's record.</summary>
    public IReadOnlyCollection<FollowerProgress> Followers => _tracker.All;

    /// <summary>The last comparison of its voters' digests that found no difference.</summary>
    public DigestsCompared? DigestsCompared => _digests.Last;

    /// <inheritdoc cref="DigestComparison.Agreement"/>
    public DigestsCompared? DigestsAgree => _digests.Agreement;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs
    {
        get
        {
            var dueUs = _succession.IsReleased ? _heartbeats.CheckDueUs : Math.Min(_heartbeats.DueUs, _heartbeats.CheckDueUs);
            dueUs = Math.Min(dueUs, _digests.DueUs);
            return Math.Min(dueUs, Math.Min(_succession.DueUs, _membership?.DueUs ?? long.MaxValue));
        }
    }

    /// <summary>Something was asked of the leader, a replica wants to campaign, or a node, perhaps a follower's, is silent. Ends quiescence.</summary>
    public void Asked() => _heartbeats.Asked();

    /// <summary>A record of this epoch was appended here. The first one is the epoch-open record.</summary>
    public void OnAppended(RecordRef record)
    {
        Invariant.Check(record.Etag.Epoch == Epoch, $"Record {record.Name} was appended while leading epoch {Epoch}.");
        Invariant.Check(record.Etag > record.Previous && record.Name == _context.Journal.Last.Name, $"Record {record.Name} was appended to a journal that ends "
            + $"at {_context.Journal.Last.Name}.");
        Invariant.Check(Phase < LeaderPhase.Transferring, $"Record {record.Name} was appended in phase {Phase}.");
        Asked();
        _context.Pace.Appended(record.Etag, _context.NowUs);
        if (Phase != LeaderPhase.Prepared)
            return;
        Enter(LeaderPhase.Opening);
        // Another replica may have claimed a higher epoch while this one won, and given up since. Callers go by that claim as long as nobody makes a later one.
        NoteSuperseded();
        _heartbeats.Quiescence.Begin();
        _tracker.AddNew(record.PreviousName);
        SendRound();
    }

    /// <summary>The shard's record changed. False if its voters are no longer those of this leadership, which then ends.</summary>
    public bool TryFollowRecord()
    {
        NoteSuperseded();
        if (Phase != LeaderPhase.Prepared)
            _tracker.AddNew(_context.Journal.Last.Name);
        foreach (var gone in _tracker.RemoveGone())
            _shipping.Stop(gone);
        var follows = _membership?.TryFollow(_context.View) ?? _context.View.Voters.SameAs(_tracker.Voters);
        TakeVoters();
        // The voters are the same, but if the record was rebuilt, others of them count from here on.
        if (follows && _membership is null)
            _tracker.Decide(_context.View.Voters);
        return follows;
    }

    /// <summary>Begins to change the shard's replicas. Answered by one <see cref="Effect.OrderEnded"/>, at once if the change cannot begin.</summary>
    public void ChangeReplicas(long orderId, ReplicaChange change)
    {
        Asked();
        var refusal = !IsServing ? "this replica does not serve"
            : SupersededUs != long.MaxValue ? "a higher epoch was assigned"
            : _succession.IsTransferring ? "the leadership is being transferred"
            : _membership is not null ? "another change of the replicas is in progress"
            : !change.Joins.IsNone && !_tracker.FollowsClosely(change.Joins) ? $"replica {change.Joins} has not caught up"
            : null;
        if (refusal is not null)
            _context.Emit(new Effect.OrderEnded(orderId, false, refusal));
        else
            _membership = new Membership(_context, Epoch, orderId, change, _tracker.Voters);
    }

    /// <summary>The record was read, for a change of replicas or for something else.</summary>
    public void OnRecordRead(long readId, ShardRecord? record, long revision)
    {
        _membership?.OnRecordRead(readId, record, revision);
        TakeVoters();
    }

    /// <summary>A compare-and-set ended, that of a change of replicas or another one.</summary>
    public void OnSetDone(long setId, SetOutcome outcome, long revision)
    {
        var before = _context.View;
        _membership?.OnSetDone(setId, outcome, revision);
        if (_context.View != before)
            TryFollowRecord();
        TakeVoters();
    }

    /// <summary>An answer in this epoch from another replica.</summary>
    public void OnFrame(Frame frame)
    {
        if (!_tracker.TryGet(frame.SenderId, out var follower) || !follower.TryHear(frame.SenderIncarnation, out var restarted))
            return;
        if (restarted)
        {
            Asked();
            _shipping.OnRestarted(follower);
            _digests.OnReplaced(follower);
        }

        if (!_shipping.IsPossible(frame))
            return;
        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.Ack:
                _shipping.OnAck(follower, frame.Ack.Durable.FromWire(), frame.Ack.Recovering);
                break;
            case Frame.PayloadOneofCase.HeartbeatAck:
                _shipping.OnAck(follower, frame.HeartbeatAck.Durable.FromWire(), frame.HeartbeatAck.Recovering);
                _heartbeats.OnAck(follower, frame.HeartbeatAck);
                break;
            case Frame.PayloadOneofCase.Match:
                _shipping.OnMatch(follower, frame.Match);
                break;
            case Frame.PayloadOneofCase.SnapshotAck:
                _shipping.OnSnapshotAck(follower, frame.SnapshotAck);
                break;
            case Frame.PayloadOneofCase.ReadIndex when IsServing:
                Asked();
                _readIndexes.Add(follower, frame.ReadIndex.Number, LeaseEndUs);
                break;
            case Frame.PayloadOneofCase.DigestReport:
                _digests.OnReport(follower, frame.DigestReport);
                break;
            case Frame.PayloadOneofCase.DigestDoubt:
                _digests.Hasten();
                break;
            case Frame.PayloadOneofCase.TransferReady:
                _succession.OnReady(follower.Replica);
                break;
        }
    }

    /// <summary>The driver has sent bodies up to and including this record.</summary>
    public void OnBodiesSent(ReplicaId replica, LogPosition last, long bytes)
    {
        if (_tracker.TryGet(replica, out var follower))
            _shipping.OnBodiesSent(follower, last, bytes);
    }

    /// <summary>A checkpoint is pinned for a follower.</summary>
    public void OnSnapshotOpened(ReplicaId replica, LogPosition covers, long bytesTotal)
    {
        if (_tracker.TryGet(replica, out var follower))
            _shipping.OnSnapshotOpened(follower, covers, bytesTotal);
        else
            _context.Emit(new Effect.CloseSnapshot(replica));
    }

    /// <summary>A pin was revoked.</summary>
    public void OnSnapshotLost(ReplicaId replica, LogPosition covers, string reason)
    {
        if (_tracker.TryGet(replica, out var follower))
            _shipping.OnSnapshotLost(follower, covers, reason);
    }

    /// <summary>A read arrived that the lease does not cover. It waits for a round.</summary>
    public void OnRead(long readId)
    {
        Asked();
        _rounds.Add(readId);
    }

    /// <summary>Begins a transfer. Answered by one <see cref="Effect.OrderEnded"/>, at once if it cannot begin.</summary>
    /// <param name="orderId">Names the request.</param>
    /// <param name="replica">The replica that should lead; 0: the most advanced voter.</param>
    public void Transfer(long orderId, ReplicaId replica)
    {
        Asked();
        var refusal = !IsServing ? "this replica does not serve"
            : _succession.IsTransferring ? "the leadership is already being transferred"
            : _membership is not null ? "the replicas are being changed"
            : null;
        if (refusal is not null)
            _context.Emit(new Effect.OrderEnded(orderId, false, refusal));
        else
            _succession.Begin(orderId, replica);
    }

    /// <summary>Begins a transfer if this replica should not lead and another one can.</summary>
    public void LeaveImpaired()
    {
        if (_context.Impaired && IsServing && !_succession.IsTransferring && _membership is null)
            _succession.LeaveImpaired();
    }

    /// <summary>Somebody waits for a comparison of the voters' digests.</summary>
    public void WantDigests()
    {
        if (IsServing)
            _digests.Hasten();
    }

    /// <summary>Does what is due by the clock. A non-null reason means that this leadership is over.</summary>
    public string? OnTick()
    {
        if (Phase == LeaderPhase.Prepared)
            return null;
        if (_heartbeats.TryCheck())
        {
            if (_heartbeats.IsAlone)
                return "no majority has answered for 1.5 times the greatest timeout";
            foreach (var follower in _tracker.All)
                _shipping.CheckStall(follower);
            LeaveImpaired();
        }

        if (_succession.OnTick() is { } reason)
            return reason;
        _membership?.OnTick();
        TakeVoters();
        BeginComparison();
        if (_context.NowUs >= _heartbeats.DueUs && !_succession.IsReleased)
            SendRound();
        return null;
    }

    /// <summary>Draws all conclusions from what is known: commits, confirms reads, sends.</summary>
    public void Advance()
    {
        if (Phase == LeaderPhase.Prepared)
            return;
        _membership?.Advance(_tracker.DurableOf);
        if (_commit.TryCommit() && Phase == LeaderPhase.Opening)
            Serve();
        _tracker.ComparePace();
        if (_heartbeats.IsRoundWanted)
            SendRound();
        if (IsServing && _rounds.TryConfirm(_tracker.Round, out var readIdLast))
            _context.Emit(new Effect.ReadsConfirmed(readIdLast));
        if (IsServing)
            _readIndexes.Answer();
        foreach (var follower in _tracker.All)
            _shipping.SendTo(follower);
        if (_succession.TryDrain())
            StopServing(LeaderPhase.Transferring);
        _succession.Advance(_rounds.Newest);
        CompareDigests();
        _context.NoteProgress(_context.Journal.Durable.Etag);
    }

    /// <summary>Ends the epoch. Nothing is served, sent or counted after it.</summary>
    /// <param name="reason">The reason.</param>
    /// <param name="successor">The leader of a higher epoch if that is the reason; else 0.</param>
    public void Stop(string reason, ReplicaId successor)
    {
        StopServing(LeaderPhase.Ended);
        _context.Pace.Forget();
        _succession.End(successor, reason);
        _membership?.Abandon(reason);
        _context.OwnDigest.Forget();
        _context.Emit(new Effect.StopLeading(reason));
        foreach (var follower in _tracker.All)
            _shipping.Stop(follower);
        _context.Log($"stopped leading epoch {Epoch}: {reason}");
    }

    private void NoteSuperseded()
    {
        if (_context.View.Record.Epoch <= Epoch || SupersededUs != long.MaxValue)
            return;
        _context.Log($"epoch {_context.View.Record.Epoch} was assigned while this replica leads {Epoch}; it continues until it is fenced");
        SupersededUs = _context.NowUs;
    }

    private void Enter(LeaderPhase phase)
    {
        Invariant.Check(phase > Phase, $"The leadership of epoch {Epoch} goes from {Phase} to {phase}.");
        Phase = phase;
    }

    private void Serve()
    {
        Invariant.Check(_context.Committed.Epoch == Epoch, $"Epoch {Epoch} is served, but the committed etag is {_context.Committed}.");
        Enter(LeaderPhase.Serving);
        _context.Log($"serving epoch {Epoch}");
        _context.Emit(new Effect.Serving(true));
        _context.Emit(new Effect.LeaderKnown(Epoch, _context.Self, _context.View.NodeOf(_context.Self)));
    }

    private void StopServing(LeaderPhase next)
    {
        if (_rounds.RefuseAll() is var last and not 0)
            _context.Emit(new Effect.ReadsRefused(last));
        if (IsServing)
            _context.Emit(new Effect.Serving(false));
        Enter(next);
    }

    private void SendRound() => _heartbeats.Send(
        IsServing && !_succession.IsTransferring && _membership is null && !_digests.Busy && SupersededUs == long.MaxValue, LeaseEndUs);

    // Both sets of voters decide from before a change of voters is sent until its outcome is certain.
    private void TakeVoters()
    {
        if (_membership is null)
            return;
        _tracker.Decide(_membership.Voters);
        if (_membership.Phase == MembershipPhase.Ended)
            _membership = null;
    }

    private void BeginComparison()
    {
        _digests.OnTick(Followers, _tracker.Voters);
        if (!_digests.IsDue)
            return;
        var voters = _tracker.All
            .Where(follower => _tracker.Voters.Contains(follower.Replica)
                && follower.State == FollowerState.Replicate
                && !_digests.IsCondemned(follower.Replica)
                && _heartbeats.Quiescence.MayBeAlive(follower))
            .ToList();
        if (!IsServing || _succession.IsTransferring || _membership is not null || voters.Count == 0)
        {
            _digests.Postpone();
            return;
        }

        Asked();
        _digests.Begin(voters);
    }

    private void CompareDigests()
    {
        if (!_digests.Busy)
            return;
        _digests.Advance(_tracker.ById, _tracker.Voters, _tracker.DurableOf);
        LeaveImpaired();
    }
}
