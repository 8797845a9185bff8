using KvCluster.V1;

namespace KvCluster.Replication;

/// <summary>
/// One epoch led by this process, from its epoch-open record to its end: follower progress, commit, leases, rounds of reads. An epoch is never
/// led twice; stopping is for good.
/// </summary>
internal sealed class Leadership
{
    private readonly ReplicaContext _context;
    private Quorum _quorum;
    private readonly Dictionary<ulong, FollowerProgress> _followers = [];
    private readonly ReadRounds _rounds;
    private readonly Func<ulong, Etag> _durableOf;
    private readonly Func<ulong, long> _heardOf;
    private readonly Func<ulong, long> _grantOf;
    private readonly Func<ulong, ulong> _roundOf;
    private long _heartbeatDueUs;
    private long _checkDueUs;
    private long _handOverDueUs;
    private bool _roundAwaited;
    private bool _rests;
    private long _wokeUs;
    private long _askedUs;
    private bool _open;
    private LeaderTransfer? _transfer;
    private Membership? _membership;

    /// <summary>Created when the epoch is won and prepared; <see cref="OnAppended"/> with the epoch-open record follows.</summary>
    public Leadership(ReplicaContext context, ulong epoch, Quorum quorum)
    {
        _context = context;
        _quorum = quorum;
        Epoch = epoch;
        _rounds = new ReadRounds(context.Options.RoundsKept);
        _durableOf = id => id == context.Self ? context.Journal.Durable.Etag : _followers.TryGetValue(id, out var follower) ? follower.Acked : Etag.None;
        _heardOf = id => id == context.Self ? long.MaxValue : _followers.TryGetValue(id, out var follower) ? follower.HeardUs : 0;
        _grantOf = id => id == context.Self ? long.MaxValue : _followers.TryGetValue(id, out var follower) ? follower.GrantEndUs : 0;
        _roundOf = id => id == context.Self ? _rounds.Newest : _followers.TryGetValue(id, out var follower) ? follower.Round : 0;
    }

    public ulong Epoch { get; }

    /// <summary>The epoch-open record is committed.</summary>
    public bool Serving { get; private set; }

    /// <summary>When another leadership was seen in the record; <see cref="long.MaxValue"/>: none.</summary>
    public long SupersededUs { get; private set; } = long.MaxValue;

    /// <summary>Reads are linearizable before this time of the own clock.</summary>
    public long LeaseEndUs => Serving ? _quorum.Agreed(_grantOf) : 0;

    /// <summary>All other replicas of the shard's record.</summary>
    public IReadOnlyCollection<FollowerProgress> Followers => _followers.Values;

    // All leaders of a node beat at the same moments, so that their heartbeats travel together.
    private long NextBeatUs => ((_context.NowUs / BeatIntervalUs) + 1) * BeatIntervalUs;

    private long BeatIntervalUs => _rests ? _context.Options.RestIntervalUs : _context.Options.HeartbeatIntervalUs;

    /// <summary>Nothing was asked of it for some time: it beats seldom and has no lease.</summary>
    public bool Rests => _rests;

    /// <summary>When something is to be done by the clock.</summary>
    public long DueUs
    {
        get
        {
            var dueUs = _transfer is { Phase: TransferPhase.Released } ? _checkDueUs : Math.Min(_heartbeatDueUs, _checkDueUs);
            return Math.Min(dueUs, Math.Min(_transfer?.DueUs ?? long.MaxValue, _membership?.DueUs ?? long.MaxValue));
        }
    }

    /// <summary>Serving ended because the leadership is being handed over.</summary>
    public bool HandsOver => _transfer is { StoppedServing: true };

    /// <summary>A hand-over has begun; it may still fail, and this replica then goes on.</summary>
    public bool MayHandOver => _transfer is not null;

    /// <summary>A record of the own epoch was appended here; the first one is the epoch-open record.</summary>
    public void OnAppended(JournalRecord record)
    {
        Invariant.Check(record.Etag.Epoch == Epoch, $"Record {record.Name} was appended while leading epoch {Epoch}.");
        Asked();
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
        if (_context.Options.PlantedBug == PlantedBug.ServeBeforeOpen)
            Serve();
    }

    /// <summary>The shard's record changed. False: its voters are not those of this leadership any more, which then ends.</summary>
    public bool TryFollowRecord()
    {
        if (_context.View.Record.Epoch > Epoch && SupersededUs == long.MaxValue)
        {
            _context.Log($"epoch {_context.View.Record.Epoch} was given out while this replica leads {Epoch}; it goes on until fenced");
            SupersededUs = _context.NowUs;
        }

        foreach (var replica in _open ? _context.View.Record.Replicas : [])
        {
            if (replica.Replica != _context.Self && !_followers.ContainsKey(replica.Replica))
                _followers[replica.Replica] = new FollowerProgress(replica.Replica, _context.Journal.Last.Name, _context.NowUs);
        }

        foreach (var gone in _followers.Values.Where(follower => !_context.View.Contains(follower.Replica)).ToList())
        {
            if (gone.State == FollowerState.Snapshot && gone.Covers != default)
                _context.Emit(new Effect.CloseSnapshot(gone.Replica));
            _followers.Remove(gone.Replica);
        }

        var follows = _membership?.TryFollow(_context.View) ?? _context.View.Voters.SameAs(_quorum);
        TakeVoters();
        return follows;
    }

    /// <summary>Begins to change the shard's replicas. Answered by one <see cref="Effect.OrderEnded"/>, at once if it cannot begin.</summary>
    public void ChangeReplicas(long orderId, ReplicaChange change)
    {
        Asked();
        var refusal = !Serving ? "this replica does not serve"
            : SupersededUs != long.MaxValue ? "a higher epoch was given out"
            : _transfer is not null ? "the leadership is being handed over"
            : _membership is not null ? "another change of the replicas is under way"
            : change.Joins != 0 && !FollowsClosely(change.Joins) ? $"replica {change.Joins:x} has not caught up"
            : null;
        if (refusal is not null)
            _context.Emit(new Effect.OrderEnded(orderId, false, refusal));
        else
            _membership = new Membership(_context, Epoch, orderId, change, _quorum);
    }

    /// <summary>The record was read, for a change of the replicas or for another.</summary>
    public void OnRecordRead(long readId, ShardRecord? record, long revision)
    {
        _membership?.OnRecordRead(readId, record, revision);
        TakeVoters();
    }

    /// <summary>A transaction ended, of a change of the replicas or of another.</summary>
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
            Restarted(follower);
        }

        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.Ack:
                OnAck(follower, frame.Ack.Durable.FromWire(), frame.Ack.Refilling);
                break;
            case Frame.PayloadOneofCase.HeartbeatAck:
                OnHeartbeatAck(follower, frame.HeartbeatAck);
                break;
            case Frame.PayloadOneofCase.Match:
                OnMatch(follower, frame.Match);
                break;
            case Frame.PayloadOneofCase.SnapshotAck:
                OnSnapshotAck(follower, frame.SnapshotAck);
                break;
            case Frame.PayloadOneofCase.ReadIndex:
                OnReadIndex(follower, frame.ReadIndex.Number);
                break;
            case Frame.PayloadOneofCase.TransferReady:
                _transfer?.OnReady(follower.Replica);
                break;
        }
    }

    /// <summary>The driver has sent bodies up to here.</summary>
    public void OnBodiesSent(ulong replica, RecordName last, long bytes)
    {
        if (!_followers.TryGetValue(replica, out var follower) || !follower.Sending)
            return;
        follower.Sending = false;
        if (last == follower.Sent)
        {
            Signal(follower, FollowerSignal.OutOfReach);
            return;
        }

        follower.Sent = last;
        follower.Enqueue(last.Etag, bytes, _context.NowUs);
    }

    /// <summary>A checkpoint is pinned for a follower.</summary>
    public void OnSnapshotOpened(ulong replica, RecordName covers, long bytesTotal)
    {
        if (!_followers.TryGetValue(replica, out var follower) || follower.State != FollowerState.Snapshot)
        {
            _context.Emit(new Effect.CloseSnapshot(replica));
            return;
        }

        follower.Covers = covers;
        follower.SnapshotBytes = bytesTotal;
        follower.SnapshotSent = follower.SnapshotStored = 0;
        follower.MovedUs = _context.NowUs;
    }

    /// <summary>A read that the lease does not cover waits for a round.</summary>
    public void OnRead(long readId)
    {
        Asked();
        _rounds.Add(readId, next: _context.Options.PlantedBug != PlantedBug.RoundFromBefore);
    }

    /// <summary>Nothing comes from a node, perhaps a follower's, or somebody wants to stand: it does not rest now.</summary>
    public void Asked()
    {
        _askedUs = _context.NowUs;
        if (!_rests)
            return;
        _rests = false;
        _wokeUs = _heartbeatDueUs = _checkDueUs = _context.NowUs;
    }

    /// <summary>Begins to hand over. Answered by one <see cref="Effect.OrderEnded"/>, at once if it cannot begin.</summary>
    /// <param name="orderId">Names the request.</param>
    /// <param name="replica">Who is to lead; 0: the most advanced voter.</param>
    public void Transfer(long orderId, ulong replica)
    {
        Asked();
        var refusal = !Serving ? "this replica does not serve"
            : _transfer is not null ? "the leadership is being handed over already"
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

    /// <summary>Asks another to take over while the own disk is impaired and one with a healthy disk follows. Nobody ordered it, so nobody waits for its end.</summary>
    public void LeaveImpairedDisk()
    {
        if (!_context.DiskImpaired || !Serving || _transfer is not null || _membership is not null || _context.NowUs < _handOverDueUs)
            return;
        if (ChooseSuccessor(0) is not { } target)
            return;
        Asked();
        _handOverDueUs = _context.NowUs + _context.Options.TimeoutGreatestUs;
        _context.Log($"its disk is slow or full: asks replica {target.Replica:x} to take over");
        _transfer = new LeaderTransfer(_context, Epoch, 0, target);
    }

    /// <summary>Does what the clock asks for. A reason: this leadership is over.</summary>
    public string? OnTick()
    {
        if (!_open)
            return null;
        if (_context.NowUs >= _checkDueUs)
        {
            // Apart from the heartbeats, which rounds of reads may stand in for without end.
            _checkDueUs = NextBeatUs;
            // What came before a rest tells nothing of the time after it.
            var silentUs = _context.NowUs - Math.Max(_wokeUs, _quorum.Agreed(_heardOf));
            if (!_rests && silentUs > _context.Options.TimeoutGreatestUs * 3 / 2)
                return "no majority has answered for one and a half of the greatest timeout";
            foreach (var follower in _followers.Values)
                CheckStall(follower);
            LeaveImpairedDisk();
        }

        if (_transfer is not null && _context.NowUs >= _transfer.DeadlineUs)
        {
            if (_transfer.StoppedServing)
                return $"replica {_transfer.Target:x} did not take over";
            _transfer.End(0, $"replica {_transfer.Target:x} did not get ready; this replica goes on leading");
            _transfer = null;
        }

        _membership?.OnTick();
        TakeVoters();
        // Who was told to stand must not be kept from it.
        if (_context.NowUs >= _heartbeatDueUs && _transfer is not { Phase: TransferPhase.Released })
            SendRound();
        return null;
    }

    /// <summary>Takes all consequences of what is known: sends, commits, confirms reads.</summary>
    public void Advance()
    {
        if (!_open)
            return;
        _membership?.Advance(_durableOf);
        Commit();
        // Nobody hurries to answer a round that was not awaited.
        if (_rounds.Wanted && (!_roundAwaited || _quorum.Agreed(_roundOf) == _rounds.Newest))
            SendRound();
        if (Serving && _rounds.TryConfirm(_quorum.Agreed(_roundOf), out var readIdLast))
            _context.Emit(new Effect.ReadsConfirmed(readIdLast));
        AnswerReadIndexes();
        foreach (var follower in _followers.Values)
            SendTo(follower);
        AdvanceTransfer();
        _context.NoteProgress(_context.Journal.Durable.Etag);
    }

    /// <summary>Ends the epoch: nothing is served, sent or counted after it.</summary>
    /// <param name="reason">Why.</param>
    /// <param name="successor">The leader of a higher epoch, if that is why; else 0.</param>
    public void Stop(string reason, ulong successor)
    {
        StopServing();
        _transfer?.End(successor, reason);
        _membership?.Abandon(reason);
        _context.Emit(new Effect.StopLeading(reason));
        foreach (var follower in _followers.Values.Where(follower => follower.State == FollowerState.Snapshot && follower.Covers != default))
            _context.Emit(new Effect.CloseSnapshot(follower.Replica));
        _context.Log($"stopped leading epoch {Epoch}: {reason}");
    }

    // The same check as for the own reads: the lease now, or a round that is sent from now on.
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
            var frame = FrameTo(follower);
            frame.ReadIndexAnswer = new ReadIndexAnswer { Number = follower.ReadIndexAsked, Committed = _context.Committed.ToWire() };
            _context.Send(frame);
            follower.ReadIndexAsked = 0;
        }
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
            if (_context.Options.PlantedBug != PlantedBug.ReadOnAfterRelease)
                StopServing();
        }

        _transfer.Advance(_rounds.Newest, _followers.Values);
    }

    // From the barrier of a change to its definite outcome both sets decide.
    private void TakeVoters()
    {
        if (_membership is null)
            return;
        _quorum = _membership.Voters;
        if (_membership.Phase == MembershipPhase.Ended)
            _membership = null;
    }

    private bool FollowsClosely(ulong replica) => _followers.TryGetValue(replica, out var follower)
        && follower.State == FollowerState.Replicate
        && follower.OutstandingBytes <= _context.Options.FrameBytes;

    // Heard of lately, replicating, and of these the one that has the most; one with an impaired disk only by name.
    private FollowerProgress? ChooseSuccessor(ulong replica) => _followers.Values
        .Where(follower => (replica == 0 || follower.Replica == replica)
            && _quorum.Contains(follower.Replica)
            && follower.State == FollowerState.Replicate
            && (replica != 0 || !follower.DiskImpaired)
            && HeardLately(follower))
        .MaxBy(follower => follower.Acked);

    private void Commit()
    {
        var quorum = _context.Options.PlantedBug == PlantedBug.LearnerCounts ? _context.View.AllReplicas : _quorum;
        var agreed = quorum.Agreed(_durableOf);
        // A majority that has an older epoch's record proves nothing by count: a later leader may still replace it.
        if (agreed.Epoch != Epoch)
        {
            if (_context.Options.PlantedBug == PlantedBug.CommitOlderEpoch)
                _context.CommitTo(agreed);
            return;
        }

        _context.CommitTo(agreed);
        if (!Serving && !HandsOver)
            Serve();
    }

    private void Serve()
    {
        Serving = true;
        _context.Log($"serving epoch {Epoch}");
        _context.Emit(new Effect.Serving(true));
        _context.Emit(new Effect.LeaderKnown(Epoch, _context.Self, _context.View.NodeOf(_context.Self)));
    }

    // Since a rest, or within the time in which an answer is to be expected.
    private bool HeardLately(FollowerProgress follower) => _context.NowUs - Math.Max(_wokeUs, follower.HeardUs) < _context.Options.TimeoutLeastUs;

    // All replicas have all there is, and as long as nobody asks for anything none of them has to be told anything.
    private bool MayRest()
    {
        var last = _context.Journal.Last.Etag;
        return _context.Options.RestIntervalUs > 0
            && _context.NowUs - _askedUs >= _context.Options.RestAfterUs
            && Serving
            && !_rounds.Wanted
            && _transfer is null
            && _membership is null
            && SupersededUs == long.MaxValue
            && _context.Committed == last
            && _followers.Values.All(follower => follower.State == FollowerState.Replicate && follower.Acked == last && (_rests || HeardLately(follower)));
    }

    private void SendRound()
    {
        _rests = MayRest();
        _heartbeatDueUs = NextBeatUs;
        _roundAwaited = !_rests && (_rounds.Wanted || LeaseEndUs <= _context.NowUs);
        var round = _rounds.Start(_context.NowUs);
        foreach (var follower in _followers.Values)
        {
            var frame = FrameTo(follower);
            frame.Heartbeat = new Heartbeat
            {
                Round = round,
                Committed = _context.Committed.ToWire(),
                LeaseUs = _rests ? 0 : (ulong)_context.Options.LeaseUs,
                Awaited = _roundAwaited,
                RestUs = _rests ? (ulong)_context.Options.RestIntervalUs : 0,
            };
            _context.Send(frame);
        }
    }

    // Names the process that this leadership has taken note of, so that the follower knows what the leader knows of it.
    private Frame FrameTo(FollowerProgress follower)
    {
        var frame = _context.FrameTo(follower.Replica, Epoch);
        frame.ReceiverIncarnation = follower.Incarnation;
        return frame;
    }

    private void OnAck(FollowerProgress follower, Etag durable, bool refilling)
    {
        if (!refilling)
        {
            follower.HeardUs = _context.NowUs;
            follower.Acked = Wire.Greater(follower.Acked, durable);
            follower.ToldToRefill &= durable < follower.Remembered;
        }

        var before = follower.OutstandingBytes;
        follower.Release(durable);
        if (follower.OutstandingBytes < before)
            follower.MovedUs = _context.NowUs;
    }

    private void OnHeartbeatAck(FollowerProgress follower, HeartbeatAck ack)
    {
        OnAck(follower, ack.Durable.FromWire(), ack.Refilling);
        follower.DiskImpaired = ack.DiskImpaired;
        if (ack.Refilling || !_rounds.TryGetSentUs(ack.Round, out var sentUs))
            return;
        follower.Round = Math.Max(follower.Round, ack.Round);
        if (ack.Granted)
            follower.GrantEndUs = Math.Max(follower.GrantEndUs, sentUs + _context.Options.LeaseUs);
    }

    private void OnMatch(FollowerProgress follower, Match match)
    {
        OnAck(follower, match.Durable.FromWire(), match.Refilling);
        var record = match.Record.FromWire();
        if (match.Found)
        {
            if (follower.State != FollowerState.Probe)
                return;
            if (TailMatch.Has(_context.Journal, record))
                Continue(follower, record);
            else if (record == follower.Probe)
                // Asked for while the journal still reached back that far.
                Signal(follower, FollowerSignal.OutOfReach);
            return;
        }

        if (follower.State == FollowerState.Snapshot)
            return;
        var asked = follower.State == FollowerState.Probe ? follower.Probe : follower.Sent;
        // Lacking what an earlier process of it acknowledged: it lost records, and must be told.
        follower.ToldToRefill |= asked.Etag <= follower.Remembered && record.Etag < follower.Remembered;
        if (!TailMatch.TryStepBack(_context.Journal, asked, record, out var next, out var common))
        {
            Signal(follower, FollowerSignal.OutOfReach);
            return;
        }

        if (common && !follower.ToldToRefill)
        {
            Continue(follower, record);
            return;
        }

        Signal(follower, FollowerSignal.Differs);
        follower.Probe = next;
        SendProbe(follower);
    }

    // The record is common: send what follows it.
    private void Continue(FollowerProgress follower, RecordName common)
    {
        Signal(follower, FollowerSignal.Common);
        follower.Sent = common;
        follower.ForgetBehind(common.Etag);
        follower.MovedUs = _context.NowUs;
    }

    private void Restarted(FollowerProgress follower)
    {
        _context.Log($"replica {follower.Replica:x} has restarted");
        follower.Restart();
        Signal(follower, FollowerSignal.Restarted);
        // Asking for what it acknowledged shows at once whether it still has it.
        var found = _context.Journal.TryFind(follower.Remembered, out var remembered);
        follower.Probe = found && follower.Remembered != Etag.None ? remembered.Name : _context.Journal.Last.Name;
        follower.ProbeDueUs = _context.NowUs;
    }

    private void OnSnapshotAck(FollowerProgress follower, SnapshotAck ack)
    {
        if (follower.State != FollowerState.Snapshot || follower.Covers == default || ack.Covers.FromWire() != follower.Covers)
            return;
        if (ack.Installed)
        {
            var covers = follower.Covers;
            Signal(follower, FollowerSignal.Installed);
            follower.Probe = covers;
            follower.ProbeDueUs = _context.NowUs;
            return;
        }

        var stored = Math.Min((long)ack.BytesStored, follower.SnapshotBytes);
        if (stored != follower.SnapshotStored)
            follower.MovedUs = _context.NowUs;
        // Less than before: it starts over, from a new process or a new epoch.
        if (stored < follower.SnapshotStored)
            follower.SnapshotSent = stored;
        follower.SnapshotStored = stored;
    }

    private void CheckStall(FollowerProgress follower)
    {
        if (_context.NowUs - follower.MovedUs < _context.Options.StallUs)
            return;
        if (follower.State == FollowerState.Replicate && follower.OutstandingBytes > 0)
        {
            Signal(follower, FollowerSignal.Stalled);
            follower.Probe = follower.Sent;
            follower.ProbeDueUs = _context.NowUs;
        }
        else if (follower.State == FollowerState.Snapshot && follower.Covers != default)
        {
            Signal(follower, FollowerSignal.Stalled);
            // All is stored, but that it is installed was not heard: the last chunk again asks for it.
            follower.SnapshotSent = follower.SnapshotStored < follower.SnapshotBytes
                ? follower.SnapshotStored
                : Math.Max(0, follower.SnapshotBytes - _context.Options.SnapshotChunkBytes);
            follower.MovedUs = _context.NowUs;
        }
    }

    private void Signal(FollowerProgress follower, FollowerSignal signal)
    {
        var before = follower.State;
        follower.State = FollowerTransitions.Next(before, signal);
        if (follower.State == before)
            return;
        _context.Log($"replica {follower.Replica:x}: {before} to {follower.State} ({signal})");
        if (before == FollowerState.Snapshot)
        {
            if (follower.Covers != default)
                _context.Emit(new Effect.CloseSnapshot(follower.Replica));
            follower.Covers = default;
        }

        if (follower.State == FollowerState.Snapshot)
        {
            follower.ForgetBehind(Etag.None);
            _context.Emit(new Effect.OpenSnapshot(follower.Replica));
        }
    }

    private void SendTo(FollowerProgress follower)
    {
        switch (follower.State)
        {
            case FollowerState.Probe when _context.NowUs >= follower.ProbeDueUs:
                SendProbe(follower);
                break;
            case FollowerState.Replicate:
                SendBodies(follower);
                break;
            case FollowerState.Snapshot:
                SendSnapshot(follower);
                break;
        }
    }

    private void SendProbe(FollowerProgress follower)
    {
        follower.ProbeDueUs = _context.NowUs + _context.Options.HeartbeatIntervalUs;
        var frame = FrameTo(follower);
        frame.Probe = new Probe { Record = follower.Probe.ToWire(), Remembered = (follower.ToldToRefill ? follower.Remembered : Etag.None).ToWire() };
        _context.Send(frame);
    }

    private void SendBodies(FollowerProgress follower)
    {
        var windowBytes = _context.Options.WindowBytes - follower.OutstandingBytes;
        var node = _context.View.NodeOf(follower.Replica);
        if (follower.Sending || windowBytes <= 0 || node == 0 || follower.Sent.Etag >= _context.Journal.Last.Etag)
            return;
        follower.Sending = true;
        var frame = FrameTo(follower);
        frame.Append = new Append { Previous = follower.Sent.ToWire(), Committed = _context.Committed.ToWire() };
        _context.Emit(new Effect.SendBodies(node, frame, follower.Sent, (int)Math.Min(windowBytes, _context.Options.FrameBytes)));
    }

    private void SendSnapshot(FollowerProgress follower)
    {
        var node = _context.View.NodeOf(follower.Replica);
        while (follower.Covers != default
            && node != 0
            && follower.SnapshotSent < follower.SnapshotBytes
            && follower.SnapshotSent - follower.SnapshotStored < _context.Options.SnapshotWindowBytes)
        {
            var bytes = (int)Math.Min(_context.Options.SnapshotChunkBytes, follower.SnapshotBytes - follower.SnapshotSent);
            var frame = FrameTo(follower);
            frame.SnapshotChunk = new SnapshotChunk
            {
                Covers = follower.Covers.ToWire(),
                Offset = (ulong)follower.SnapshotSent,
                BytesTotal = (ulong)follower.SnapshotBytes,
            };
            _context.Emit(new Effect.SendSnapshotChunk(node, frame, bytes));
            follower.SnapshotSent += bytes;
        }
    }
}
