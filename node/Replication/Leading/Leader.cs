using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.Reconfiguration;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Leading;

/// <summary>
/// One epoch led by this process, from its epoch-open record to its end: commit, leases, read rounds, transfer, changes of its voters. An epoch is never led
/// twice; stopping is for good.
/// </summary>
internal sealed class Leader
{
    private readonly ReplicaContext _context;
    private Quorum _quorum;
    private Quorum _committing;
    private readonly Dictionary<ulong, FollowerProgress> _followers = [];
    private readonly JournalShipping _shipping;
    private readonly ReadRounds _rounds;
    private readonly Func<ulong, Etag> _durableOf;
    private readonly Func<ulong, Etag> _durableOfOther;
    private readonly Func<ulong, long> _heardOf;
    private readonly Func<ulong, long> _grantOf;
    private readonly Func<ulong, ulong> _roundOf;
    private long _heartbeatDueUs;
    private long _checkDueUs;
    private long _handOverDueUs;
    private bool _roundAwaited;
    private bool _isQuiescent;
    private long _wokeUs;
    private long _askedUs;
    private bool _open;
    private LeaderTransfer? _transfer;
    private Membership? _membership;
    private readonly DigestComparison _digests;

    /// <summary>Created when the epoch is won and prepared; <see cref="OnAppended"/> with the epoch-open record follows.</summary>
    public Leader(ReplicaContext context, ulong epoch, Quorum quorum)
    {
        _context = context;
        _quorum = quorum;
        _committing = context.Options.Rules.Committing(quorum, context.View);
        Epoch = epoch;
        _shipping = new JournalShipping(context, epoch);
        _rounds = new ReadRounds(context.Options.RoundsKept);
        _digests = new DigestComparison(context, epoch, _shipping.FrameTo);
        _durableOf = id => id == context.Self ? context.Journal.Durable.Etag
            : !_followers.TryGetValue(id, out var follower) || _digests.IsCondemned(id) ? Etag.None
            : follower.Acked;
        _durableOfOther = id => id == context.Self ? Etag.None : _durableOf(id);
        _heardOf = id => id == context.Self ? long.MaxValue : _followers.TryGetValue(id, out var follower) ? follower.HeardUs : 0;
        _grantOf = id => id == context.Self ? long.MaxValue : _followers.TryGetValue(id, out var follower) ? follower.GrantEndUs : 0;
        _roundOf = id => id == context.Self ? _rounds.Newest : _followers.TryGetValue(id, out var follower) ? follower.Round : 0;
    }

    public ulong Epoch { get; }

    /// <summary>Whether requests are served. That begins when the epoch-open record is committed.</summary>
    public bool Serving { get; private set; }

    /// <summary>When the record first named a higher epoch; <see cref="long.MaxValue"/> if never.</summary>
    public long SupersededUs { get; private set; } = long.MaxValue;

    /// <summary>Reads are linearizable before this time of this replica's clock.</summary>
    public long LeaseEndUs => Serving ? _quorum.Agreed(_grantOf) : 0;

    /// <summary>
    /// The latest time at which, as far as this leader knows, nobody else can have committed anything: the present while the lease lasts, then the lease's
    /// end; or the send time of the newest round that a majority answered, if later. A quiescent leader learns only the latter. <see cref="long.MinValue"/>
    /// if it does not serve.
    /// </summary>
    public long CurrentUs => !Serving ? long.MinValue
        : Math.Max(Math.Min(_context.NowUs, LeaseEndUs), _rounds.TryGetSentUs(_quorum.Agreed(_roundOf), out var sentUs) ? sentUs : long.MinValue);

    /// <summary>All other replicas of the shard's record.</summary>
    public IReadOnlyCollection<FollowerProgress> Followers => _followers.Values;

    // All leaders of a node send heartbeats at the same moments, so that these travel in one message.
    private long NextBeatUs => ((_context.NowUs / BeatIntervalUs) + 1) * BeatIntervalUs;

    private long BeatIntervalUs => _isQuiescent ? _context.Options.QuiescentIntervalUs : _context.Options.HeartbeatIntervalUs;

    /// <summary>The last comparison of its voters' digests that found no difference.</summary>
    public DigestsCompared? DigestsCompared => _digests.Last;

    /// <summary>Whether it is quiescent: nothing was asked of it for some time, so it sends few heartbeats and has no lease.</summary>
    public bool IsQuiescent => _isQuiescent;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs
    {
        get
        {
            var dueUs = _transfer is { Phase: TransferPhase.Released } ? _checkDueUs : Math.Min(_heartbeatDueUs, _checkDueUs);
            dueUs = Math.Min(dueUs, _digests.DueUs);
            return Math.Min(dueUs, Math.Min(_transfer?.DueUs ?? long.MaxValue, _membership?.DueUs ?? long.MaxValue));
        }
    }

    /// <summary>Serving ended because of a transfer.</summary>
    public bool IsTransferring => _transfer is { StoppedServing: true };

    /// <summary>A transfer has begun. It may still fail, and this replica then continues to lead.</summary>
    public bool MayHandOver => _transfer is not null;

    /// <summary>A record of this epoch was appended here. The first one is the epoch-open record.</summary>
    public void OnAppended(JournalRecord record)
    {
        Invariant.Check(record.Etag.Epoch == Epoch, $"Record {record.Name} was appended while leading epoch {Epoch}.");
        Asked();
        _context.Pace.Appended(record.Etag, _context.NowUs);
        if (_open)
            return;
        _open = true;
        _wokeUs = _context.NowUs;
        foreach (var replica in _context.View.Record.Replicas)
        {
            if (replica.Replica != _context.Self)
                _followers[replica.Replica] = new FollowerProgress(replica.Replica, record.PreviousName, _context.NowUs);
        }

        SendRound();
        if (_context.Options.Rules.ServesBeforeOpen)
            Serve();
    }

    /// <summary>The shard's record changed. False if its voters are no longer those of this leadership, which then ends.</summary>
    public bool TryFollowRecord()
    {
        if (_context.View.Record.Epoch > Epoch && SupersededUs == long.MaxValue)
        {
            _context.Log($"epoch {_context.View.Record.Epoch} was assigned while this replica leads {Epoch}; it continues until it is fenced");
            SupersededUs = _context.NowUs;
        }

        foreach (var replica in _open ? _context.View.Record.Replicas : [])
        {
            if (replica.Replica != _context.Self && !_followers.ContainsKey(replica.Replica))
                _followers[replica.Replica] = new FollowerProgress(replica.Replica, _context.Journal.Last.Name, _context.NowUs);
        }

        foreach (var gone in _followers.Values.Where(follower => !_context.View.Contains(follower.Replica)).ToList())
        {
            _shipping.Stop(gone);
            _followers.Remove(gone.Replica);
        }

        var follows = _membership?.TryFollow(_context.View) ?? _context.View.Voters.SameAs(_quorum);
        TakeVoters();
        return follows;
    }

    /// <summary>Begins to change the shard's replicas. Answered by one <see cref="Effect.OrderEnded"/>, at once if the change cannot begin.</summary>
    public void ChangeReplicas(long orderId, ReplicaChange change)
    {
        Asked();
        var refusal = !Serving ? "this replica does not serve"
            : SupersededUs != long.MaxValue ? "a higher epoch was assigned"
            : _transfer is not null ? "the leadership is being transferred"
            : _membership is not null ? "another change of the replicas is in progress"
            : change.Joins != 0 && !FollowsClosely(change.Joins) ? $"replica {change.Joins:x} has not caught up"
            : null;
        if (refusal is not null)
            _context.Emit(new Effect.OrderEnded(orderId, false, refusal));
        else
            _membership = new Membership(_context, Epoch, orderId, change, _quorum);
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
        if (!_followers.TryGetValue(frame.Sender, out var follower) || !follower.TryHear(frame.SenderIncarnation, out var restarted))
            return;
        if (restarted)
        {
            Asked();
            _shipping.OnRestarted(follower);
            _digests.OnReplaced(follower);
        }

        // No replica can have what this leader has not written. If this were accepted, every later record would count as durable there.
        if (ToldDurable(frame) is var told && told > _context.Journal.Last.Etag)
        {
            _context.Emit(new Effect.Alarm($"replica {frame.Sender:x} acknowledges {told}, but this leader's journal ends at {_context.Journal.Last.Name}; the acknowledgement was dropped"));
            return;
        }

        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.Ack:
                _shipping.OnAck(follower, frame.Ack.Durable.FromWire(), frame.Ack.Recovering);
                break;
            case Frame.PayloadOneofCase.HeartbeatAck:
                OnHeartbeatAck(follower, frame.HeartbeatAck);
                break;
            case Frame.PayloadOneofCase.Match:
                _shipping.OnMatch(follower, frame.Match);
                break;
            case Frame.PayloadOneofCase.SnapshotAck:
                _shipping.OnSnapshotAck(follower, frame.SnapshotAck);
                break;
            case Frame.PayloadOneofCase.ReadIndex:
                OnReadIndex(follower, frame.ReadIndex.Number);
                break;
            case Frame.PayloadOneofCase.DigestReport:
                _digests.OnReport(follower, frame.DigestReport);
                break;
            case Frame.PayloadOneofCase.DigestDoubt:
                _digests.OnDoubt();
                break;
            case Frame.PayloadOneofCase.TransferReady:
                _transfer?.OnReady(follower.Replica);
                break;
        }
    }

    private static Etag ToldDurable(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Ack => frame.Ack.Durable.FromWire(),
        Frame.PayloadOneofCase.HeartbeatAck => frame.HeartbeatAck.Durable.FromWire(),
        Frame.PayloadOneofCase.Match => frame.Match.Durable.FromWire(),
        _ => Etag.None,
    };

    /// <summary>The driver has sent bodies up to and including this record.</summary>
    public void OnBodiesSent(ulong replica, LogPosition last, long bytes)
    {
        if (_followers.TryGetValue(replica, out var follower))
            _shipping.OnBodiesSent(follower, last, bytes);
    }

    /// <summary>A checkpoint is pinned for a follower.</summary>
    public void OnSnapshotOpened(ulong replica, LogPosition covers, long bytesTotal)
    {
        if (_followers.TryGetValue(replica, out var follower))
            _shipping.OnSnapshotOpened(follower, covers, bytesTotal);
        else
            _context.Emit(new Effect.CloseSnapshot(replica));
    }

    /// <summary>A pin was revoked.</summary>
    public void OnSnapshotLost(ulong replica, LogPosition covers, string reason)
    {
        if (_followers.TryGetValue(replica, out var follower))
            _shipping.OnSnapshotLost(follower, covers, reason);
    }

    /// <summary>A read arrived that the lease does not cover. It waits for a round.</summary>
    public void OnRead(long readId)
    {
        Asked();
        _rounds.Add(readId);
    }

    /// <summary>Something was asked of the leader, a replica wants to campaign, or a node, perhaps a follower's, is silent. Ends quiescence.</summary>
    public void Asked()
    {
        _askedUs = _context.NowUs;
        if (!_isQuiescent)
            return;
        _isQuiescent = false;
        _wokeUs = _heartbeatDueUs = _checkDueUs = _context.NowUs;
    }

    /// <summary>Begins a transfer. Answered by one <see cref="Effect.OrderEnded"/>, at once if it cannot begin.</summary>
    /// <param name="orderId">Names the request.</param>
    /// <param name="replica">The replica that should lead; 0: the most advanced voter.</param>
    public void Transfer(long orderId, ulong replica)
    {
        Asked();
        var refusal = !Serving ? "this replica does not serve"
            : _transfer is not null ? "the leadership is already being transferred"
            : _membership is not null ? "the replicas are being changed"
            : null;
        if (refusal is not null)
        {
            _context.Emit(new Effect.OrderEnded(orderId, false, refusal));
            return;
        }

        if (ChooseSuccessor(replica) is not { } target)
        {
            _context.Emit(new Effect.OrderEnded(
                orderId, false, replica == 0 ? "no other voter follows closely" : $"replica {replica:x} is not a voter that follows closely"));
            return;
        }

        _context.Log($"asks replica {target.Replica:x} to take over");
        _transfer = new LeaderTransfer(_context, Epoch, orderId, target);
    }

    /// <summary>
    /// Begins a transfer if this replica's disk is impaired or its tree doubted, and a follower qualifies to which neither applies. Nobody ordered it, so
    /// nobody waits for its end.
    /// </summary>
    public void LeaveImpaired()
    {
        if (!_context.Impaired || !Serving || _transfer is not null || _membership is not null || _context.NowUs < _handOverDueUs)
            return;
        if (ChooseSuccessor(0) is not { } target)
            return;
        Asked();
        _handOverDueUs = _context.NowUs + _context.Options.TimeoutGreatestUs;
        _context.Log($"its {(_context.TreeDoubted ? "tree is doubted" : "disk is slow or full")}: asks replica {target.Replica:x} to take over");
        _transfer = new LeaderTransfer(_context, Epoch, 0, target);
    }

    /// <summary>Does what is due by the clock. A non-null reason means that this leadership is over.</summary>
    public string? OnTick()
    {
        if (!_open)
            return null;
        if (_context.NowUs >= _checkDueUs)
        {
            // Independent of the heartbeats, which read rounds may replace indefinitely.
            _checkDueUs = NextBeatUs;
            // Time before the end of quiescence does not count.
            var silentUs = _context.NowUs - Math.Max(_wokeUs, _quorum.Agreed(_heardOf));
            if (!_isQuiescent && silentUs > _context.Options.TimeoutGreatestUs * 3 / 2)
                return "no majority has answered for 1.5 times the greatest timeout";
            foreach (var follower in _followers.Values)
                _shipping.CheckStall(follower);
            LeaveImpaired();
        }

        if (_transfer is not null && _context.NowUs >= _transfer.DeadlineUs)
        {
            if (_transfer.StoppedServing)
                return $"replica {_transfer.Target:x} did not take over";
            _transfer.End(0, $"replica {_transfer.Target:x} did not become ready; this replica continues to lead");
            _transfer = null;
        }

        _membership?.OnTick();
        TakeVoters();
        BeginComparison();
        // The target was told to campaign; a heartbeat would stop it.
        if (_context.NowUs >= _heartbeatDueUs && _transfer is not { Phase: TransferPhase.Released })
            SendRound();
        return null;
    }

    /// <summary>Draws all conclusions from what is known: commits, confirms reads, sends.</summary>
    public void Advance()
    {
        if (!_open)
            return;
        _membership?.Advance(_durableOf);
        Commit();
        ComparePace();
        // Followers do not hurry to answer a round that was not awaited.
        if (_rounds.Wanted && (!_roundAwaited || _quorum.Agreed(_roundOf) == _rounds.Newest))
            SendRound();
        if (Serving && _rounds.TryConfirm(_quorum.Agreed(_roundOf), out var readIdLast))
            _context.Emit(new Effect.ReadsConfirmed(readIdLast));
        AnswerReadIndexes();
        foreach (var follower in _followers.Values)
            _shipping.SendTo(follower);
        AdvanceTransfer();
        CompareDigests();
        _context.NoteProgress(_context.Journal.Durable.Etag);
    }

    /// <summary>Ends the epoch. Nothing is served, sent or counted after it.</summary>
    /// <param name="reason">The reason.</param>
    /// <param name="successor">The leader of a higher epoch if that is the reason; else 0.</param>
    public void Stop(string reason, ulong successor)
    {
        StopServing();
        _context.Pace.Forget();
        _transfer?.End(successor, reason);
        _membership?.Abandon(reason);
        _context.OwnDigest.Forget();
        _context.Emit(new Effect.StopLeading(reason));
        foreach (var follower in _followers.Values)
            _shipping.Stop(follower);
        _context.Log($"stopped leading epoch {Epoch}: {reason}");
    }

    // The same check as for the leader's own reads: the lease now, or a round that is sent from now on.
    private void OnReadIndex(FollowerProgress follower, ulong number)
    {
        if (!Serving)
            return;
        Asked();
        if (number > follower.ReadIndexAsked)
            follower.ReadIndexRound = _context.NowUs < LeaseEndUs ? 0 : _rounds.Next();
        follower.ReadIndexAsked = Math.Max(follower.ReadIndexAsked, number);
    }

    private void AnswerReadIndexes()
    {
        foreach (var follower in _followers.Values)
        {
            if (!Serving || follower.ReadIndexAsked == 0 || _quorum.Agreed(_roundOf) < follower.ReadIndexRound)
                continue;
            var frame = _shipping.FrameTo(follower);
            frame.ReadIndexAnswer = new ReadIndexAnswer { Number = follower.ReadIndexAsked, Committed = _context.Committed.ToWire() };
            _context.Send(frame);
            follower.ReadIndexAsked = 0;
        }
    }

    private void ComparePace()
    {
        var pace = _context.Pace;
        if (pace.Timed is var timed && timed == Etag.None)
            return;
        var tookUs = pace.TimedForUs(_context.NowUs);
        foreach (var follower in _followers.Values)
        {
            if (follower.Acked >= timed)
                follower.NoteAck(timed, tookUs);
        }

        pace.Lead(_context.Journal.Durable.Etag, _quorum.Agreed(_durableOfOther), _context.Committed, _context.NowUs);
        if (pace.Timed == timed)
            return;
        foreach (var follower in _followers.Values)
            follower.NoteAck(timed, tookUs);
    }

    private void CompareDigests()
    {
        if (!_digests.Busy)
            return;
        _digests.Advance(_followers, _quorum, _durableOf);
        LeaveImpaired();
    }

    private void BeginComparison()
    {
        _digests.OnTick(Followers, _quorum);
        if (!_digests.IsDue)
            return;
        var voters = _followers.Values
            .Where(follower => _quorum.Contains(follower.Replica) && follower.State == FollowerState.Replicate && !_digests.IsCondemned(follower.Replica) && (_isQuiescent || HeardLately(follower)))
            .ToList();
        if (!Serving || _transfer is not null || _membership is not null || voters.Count == 0)
        {
            _digests.Postpone();
            return;
        }

        Asked();
        _digests.Begin(voters);
    }

    private void StopServing()
    {
        if (_rounds.RefuseAll() is var last and not 0)
            _context.Emit(new Effect.ReadsRefused(last));
        if (Serving)
            _context.Emit(new Effect.Serving(false));
        Serving = false;
    }

    private void AdvanceTransfer()
    {
        if (_transfer is null)
            return;
        if (_transfer.MayStopServing)
        {
            _transfer.Drain();
            StopServing();
        }

        _transfer.Advance(_rounds.Newest, _followers.Values);
    }

    // From the barrier of a change of voters to its definite outcome both sets decide.
    private void TakeVoters()
    {
        if (_membership is null)
            return;
        _quorum = _membership.Voters;
        _committing = _context.Options.Rules.Committing(_quorum, _context.View);
        if (_membership.Phase == MembershipPhase.Ended)
            _membership = null;
    }

    private bool FollowsClosely(ulong replica) => _followers.TryGetValue(replica, out var follower)
        && follower.State == FollowerState.Replicate
        && follower.OutstandingBytes <= _context.Options.FrameBytes;

    // A replicating voter heard from recently. Of these, the one with the most acknowledged; if this leader's disk is slow, the fastest one. A replica with an
    // impaired disk, or about as slow as this slow leader, is chosen only if it was named.
    private FollowerProgress? ChooseSuccessor(ulong replica)
    {
        var candidates = _followers.Values.Where(follower => (replica == 0 || follower.Replica == replica)
            && _quorum.Contains(follower.Replica)
            && follower.State == FollowerState.Replicate
            && (replica != 0 || (!follower.DiskImpaired && !IsAsSlow(follower)))
            && HeardLately(follower));
        return _context.Pace.IsSlow ? candidates.MinBy(follower => follower.AckUs == 0 ? long.MaxValue : follower.AckUs) : candidates.MaxBy(follower => follower.Acked);
    }

    private bool IsAsSlow(FollowerProgress follower) => _context.Pace is { IsSlow: true, OwnUs: var ownUs } && follower.AckUs > ownUs / 2;

    private void Commit()
    {
        var agreed = _committing.Agreed(_durableOf);
        if (agreed.Epoch != Epoch)
        {
            _context.CommitTo(_context.Options.Rules.CommittedByCount(agreed));
            return;
        }

        _context.CommitTo(agreed);
        if (!Serving && !IsTransferring)
            Serve();
    }

    private void Serve()
    {
        Serving = true;
        _context.Log($"serving epoch {Epoch}");
        _context.Emit(new Effect.Serving(true));
        _context.Emit(new Effect.LeaderKnown(Epoch, _context.Self, _context.View.NodeOf(_context.Self)));
    }

    // Heard within the shortest timeout, or quiescence ended that recently.
    private bool HeardLately(FollowerProgress follower) => _context.NowUs - Math.Max(_wokeUs, follower.HeardUs) < _context.Options.TimeoutLeastUs;

    // All replicas have everything, and as long as nobody asks for anything none of them has to be told anything.
    private bool MayBeQuiescent()
    {
        var last = _context.Journal.Last.Etag;
        return _context.Options.QuiescentIntervalUs > 0
            && _context.NowUs - _askedUs >= _context.Options.QuiescentAfterUs
            && Serving
            && !_rounds.Wanted
            && _transfer is null
            && _membership is null
            && !_digests.Busy
            && SupersededUs == long.MaxValue
            && _context.Committed == last
            && _followers.Values.All(follower => follower.State == FollowerState.Replicate && follower.Acked == last && (_isQuiescent || HeardLately(follower)));
    }

    private void SendRound()
    {
        _isQuiescent = MayBeQuiescent();
        _heartbeatDueUs = NextBeatUs;
        _roundAwaited = !_isQuiescent && (_rounds.Wanted || LeaseEndUs <= _context.NowUs);
        var round = _rounds.Start(_context.NowUs);
        foreach (var follower in _followers.Values)
        {
            var frame = _shipping.FrameTo(follower);
            frame.Heartbeat = new Heartbeat
            {
                Round = round,
                Committed = _context.Committed.ToWire(),
                LeaseUs = _isQuiescent ? 0 : (ulong)_context.Options.LeaseUs,
                Awaited = _roundAwaited,
                RestUs = _isQuiescent ? (ulong)_context.Options.QuiescentIntervalUs : 0,
                PaceUs = (ulong)_context.Pace.PaceUs(_context.NowUs),
            };
            _context.Send(frame);
        }
    }

    private void OnHeartbeatAck(FollowerProgress follower, HeartbeatAck ack)
    {
        _shipping.OnAck(follower, ack.Durable.FromWire(), ack.Recovering);
        follower.DiskImpaired = ack.DiskImpaired;
        if (ack.Recovering || !_rounds.TryGetSentUs(ack.Round, out var sentUs))
            return;
        follower.Round = Math.Max(follower.Round, ack.Round);
        if (ack.Granted)
            follower.GrantEndUs = Math.Max(follower.GrantEndUs, sentUs + _context.Options.LeaseUs);
    }
}
