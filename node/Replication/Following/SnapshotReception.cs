using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Following;

/// <summary>
/// The snapshot that a follower takes: stored beside the live state, verified and synced there, and switched in. One per replica; called within the core's
/// steps. Only the switch blocks the journal (<see cref="Installing"/>); what comes before may take long.
/// </summary>
/// <remarks>
/// What a snapshot covers is committed, because checkpoints contain nothing else. So the leaders of all later epochs have it, and every replica that has a
/// later committed record has the covered record too. Installing the snapshot where that record is missing from the journal therefore loses nothing that is
/// committed, whoever leads by then. The present leader's journal may not reach back to the covered record; then another snapshot follows. A snapshot
/// received in part is dropped when its epoch ends, because the next leader's checkpoint has its pages elsewhere. So an election can cost one transfer of the
/// snapshot, but no verification.
/// </remarks>
internal sealed class SnapshotReception(ReplicaContext context, TailTruncation truncation, LeaderMatch match)
{
    private IncomingSnapshot? _incoming;
    private HardState? _installing;

    /// <summary>A snapshot is being switched in, so the journal must not be used.</summary>
    public bool Installing => _installing is not null;

    /// <summary>The promise rose. Only a snapshot whose bytes have all arrived is kept.</summary>
    public void StartEpoch()
    {
        if (_incoming is { Phase: SnapshotPhase.Verifying or SnapshotPhase.Verified })
            _incoming.Keep();
        else if (_incoming is { Phase: SnapshotPhase.Receiving })
            Drop();
        else
            _incoming = null;
    }

    /// <summary>A chunk arrived from the leader.</summary>
    public void OnChunk(SnapshotChunk chunk)
    {
        var covers = chunk.Covers.FromWire();
        if (IsOvertaken(covers))
        {
            // The snapshot is installed already, or the journal has what it covers.
            EndUnneeded(covers);
            return;
        }

        if (_incoming is { IsKept: true } kept)
        {
            kept.Offered = covers;
            SendProgress(kept);
            return;
        }

        if (_incoming is not { } incoming || covers != incoming.Covers)
        {
            // Only its first chunk starts a snapshot. A leader's checkpoints only get newer, so a late chunk never replaces a newer snapshot.
            if (chunk.Offset != 0 || chunk.Data.IsEmpty || (_incoming is { } newer && covers.Etag < newer.Covers.Etag))
            {
                SendEnd(covers, installed: false);
                return;
            }

            _incoming = incoming = new IncomingSnapshot(covers, (long)chunk.BytesTotal);
        }

        var end = (long)chunk.Offset + chunk.Data.Length;
        // Two windows. A correct leader never has more outstanding; the bound protects memory against any other.
        var isTooMuch = incoming.BytesSubmitted - incoming.BytesStored >= 2 * context.Options.SnapshotWindowBytes;
        if ((long)chunk.Offset != incoming.BytesSubmitted || end > incoming.BytesTotal || chunk.Data.IsEmpty || isTooMuch)
        {
            SendProgress(incoming);
            return;
        }

        Invariant.Check(incoming.Phase == SnapshotPhase.Receiving, $"Bytes of the snapshot at {covers} arrive in phase {incoming.Phase}.");
        incoming.BytesSubmitted = end;
        context.Emit(new Effect.StoreSnapshotChunk(chunk));
    }

    /// <summary>The driver has stored, verified or installed a snapshot, or failed to.</summary>
    public void Handle(Event happened)
    {
        switch (happened)
        {
            case Event.SnapshotStored stored:
                OnStored(stored.Covers, stored.BytesStored);
                break;
            case Event.SnapshotVerified verified:
                OnVerified(verified.Covers, verified.BytesVerified, verified.IsWhole);
                break;
            case Event.SnapshotFailed failed:
                OnFailed(failed.Covers, failed.Fault, failed.Reason);
                break;
            case Event.SnapshotInstalled installed:
                OnInstalled(installed.Covers);
                break;
        }
    }

    /// <summary>
    /// Switches a verified snapshot in as soon as the control file is not being written, so that the newest promise goes with it. A snapshot that became
    /// outdated while it was received and verified is dropped.
    /// </summary>
    public void Pump()
    {
        // An append of this step is seen in the next one.
        if (_incoming is not { Phase: not SnapshotPhase.Installing } incoming || context.Effects.Any(effect => effect is Effect.AppendBodies))
            return;
        if (IsOvertaken(incoming.Covers))
        {
            context.Log($"the snapshot at {incoming.Covers} is no longer needed");
            if (incoming.IsKept)
                TellOfKept(incoming, installed: false);
            else
                EndUnneeded(incoming.Covers);
            Drop();
            return;
        }

        // A kept snapshot waits for a leader, because until then this replica may be about to lead with the journal that it has.
        if (incoming.Phase != SnapshotPhase.Verified || !context.Control.Idle || truncation.Busy || (incoming.IsKept && match.Leader.IsNone))
            return;
        if (!context.Recovering && context.Control.Wanted.Acknowledged > incoming.Covers.Etag)
            context.Control.Note(context.Control.Wanted with { Acknowledged = incoming.Covers.Etag });
        Invariant.Check(incoming.Covers.Etag > context.Committed, $"A snapshot at {incoming.Covers} is installed, but {context.Committed} is committed.");
        incoming.Enter(SnapshotPhase.Installing);
        _installing = context.Control.Freeze();
        context.Emit(new Effect.InstallSnapshot(incoming.Covers, _installing));
    }

    private void OnStored(LogPosition covers, long bytesStored)
    {
        if (_incoming is not { Phase: SnapshotPhase.Receiving } incoming || covers != incoming.Covers || bytesStored > incoming.BytesSubmitted)
            return;
        incoming.BytesStored = Math.Max(incoming.BytesStored, bytesStored);
        if (incoming.BytesStored == incoming.BytesTotal)
        {
            incoming.Enter(SnapshotPhase.Verifying);
            context.Emit(new Effect.VerifySnapshot(covers));
        }

        SendProgress(incoming);
    }

    private void OnVerified(LogPosition covers, long bytesVerified, bool isWhole)
    {
        if (_incoming is not { Phase: SnapshotPhase.Verifying } incoming || covers != incoming.Covers)
            return;
        incoming.BytesVerified = bytesVerified;
        if (isWhole)
            incoming.Enter(SnapshotPhase.Verified);
        SendProgress(incoming);
    }

    // The snapshot failed, and nothing of it is kept. This replica continues as before, and its leader sends another one later.
    private void OnFailed(LogPosition covers, SnapshotFault fault, string reason)
    {
        if (_incoming is not { Phase: not SnapshotPhase.Installing } incoming || covers != incoming.Covers)
            return;
        context.Log($"the snapshot at {covers} was not installed: {reason}");
        // The present leader did not send the kept snapshot. It begins to send its own.
        if (incoming.IsKept)
            TellOfKept(incoming, installed: false);
        else
            SendProgress(incoming, fault);
        _incoming = null;
    }

    private void OnInstalled(LogPosition covers)
    {
        Invariant.Check(_installing is not null, $"A snapshot at {covers} was installed that was not requested.");
        context.Control.Thaw(_installing);
        _installing = null;
        context.CommittedBySnapshot(covers.Etag);
        // The snapshot may be one of an epoch that has ended meanwhile.
        if (_incoming is not { } incoming || covers != incoming.Covers)
            return;
        if (incoming.IsKept)
        {
            // The leader then probes from where this replica is, and the answer to that establishes the match.
            TellOfKept(incoming, installed: true);
        }
        else
        {
            match.Note(covers.Etag);
            SendEnd(covers, installed: true);
        }

        _incoming = null;
    }

    // This replica has what the snapshot covers; installing it would lose what came after.
    private bool IsOvertaken(LogPosition covers) => covers.Etag <= context.Committed || TailMatch.Has(context.Journal, covers);

    private void Drop()
    {
        context.Emit(Effect.DropSnapshot.Instance);
        _incoming = null;
    }

    private void EndUnneeded(LogPosition covers)
    {
        if (TailMatch.Has(context.Journal, covers))
            match.Note(covers.Etag);
        SendEnd(covers, installed: true);
    }

    // If installed, the leader asks what this replica has by now. Otherwise it begins to send its own snapshot.
    private void TellOfKept(IncomingSnapshot kept, bool installed)
    {
        if (kept.Offered != default)
            SendEnd(kept.Offered, installed);
    }

    private void SendEnd(LogPosition covers, bool installed) => Send(new SnapshotAck { Covers = covers.ToWire(), Installed = installed });

    // The present leader is told that nothing of its own snapshot is stored, and how much of the kept one is verified, so that it waits.
    private void SendProgress(IncomingSnapshot incoming, SnapshotFault fault = SnapshotFault.Unspecified)
    {
        if (incoming.IsKept && incoming.Offered == default)
            return;
        Send(new SnapshotAck
        {
            Covers = (incoming.IsKept ? incoming.Offered : incoming.Covers).ToWire(),
            BytesStored = incoming.IsKept ? 0 : (ulong)incoming.BytesStored,
            BytesVerified = (ulong)incoming.BytesVerified,
            Fault = fault,
        });
    }

    private void Send(SnapshotAck ack)
    {
        if (match.Leader.IsNone)
            return;
        var frame = context.FrameTo(match.Leader, context.Promised);
        frame.SnapshotAck = ack;
        context.Send(frame);
    }

    /// <summary>The life of a snapshot beside the live state, until it is switched in.</summary>
    private enum SnapshotPhase
    {
        Receiving,
        Verifying,
        Verified,
        Installing,
    }

    /// <summary>One snapshot, from its first chunk to its end.</summary>
    private sealed class IncomingSnapshot(LogPosition covers, long bytesTotal)
    {
        public LogPosition Covers { get; } = covers;

        public long BytesTotal { get; } = bytesTotal;

        public SnapshotPhase Phase { get; private set; }

        /// <summary>Whether the snapshot comes from an earlier epoch than the promised one.</summary>
        public bool IsKept { get; private set; }

        /// <summary>While the snapshot is kept: the one that the present leader would send; the default if it has not begun to.</summary>
        public LogPosition Offered { get; set; }

        public long BytesSubmitted { get; set; }

        public long BytesStored { get; set; }

        public long BytesVerified { get; set; }

        public void Enter(SnapshotPhase next)
        {
            Invariant.Check(next == Phase + 1, $"The snapshot at {Covers} goes from {Phase} to {next}.");
            Invariant.Check(BytesStored == BytesTotal, $"The snapshot at {Covers} is {next} with {BytesStored} of {BytesTotal} bytes.");
            Phase = next;
        }

        /// <summary>The snapshot's epoch has ended, but all its bytes have arrived.</summary>
        public void Keep() => (IsKept, Offered) = (true, default);
    }
}
