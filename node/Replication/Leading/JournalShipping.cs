using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// Sends a leader's journal to its followers. Each follower is probed for the last common record and then sent bodies within a window, or a snapshot if the
/// journal does not reach back that far (<see cref="FollowerTransitions"/>). One per epoch.
/// </summary>
internal sealed class JournalShipping(ReplicaContext context, ulong epoch)
{
    /// <summary>
    /// A frame to a follower. It names the follower's process that this leader has heard from, so that the follower can tell whether the leader knows of
    /// its restart.
    /// </summary>
    public Frame FrameTo(FollowerProgress follower)
    {
        var frame = context.FrameTo(follower.Replica, epoch);
        frame.ReceiverIncarnation = follower.Incarnation;
        return frame;
    }

    /// <summary>
    /// Whether an answer can be true. No replica can have what this leader has not written. If this were accepted, every later record would count as durable
    /// there.
    /// </summary>
    public bool IsPossible(Frame answer)
    {
        var durable = answer.PayloadCase switch
        {
            Frame.PayloadOneofCase.Ack => answer.Ack.Durable.FromWire(),
            Frame.PayloadOneofCase.HeartbeatAck => answer.HeartbeatAck.Durable.FromWire(),
            Frame.PayloadOneofCase.Match => answer.Match.Durable.FromWire(),
            _ => Etag.None,
        };
        if (durable <= context.Journal.Last.Etag)
            return true;
        context.Emit(new Effect.Alarm($"replica {answer.SenderId} acknowledges {durable}, but this leader's journal ends at {context.Journal.Last.Name}; "
            + "the acknowledgement was dropped"));
        return false;
    }

    /// <summary>A follower reported what it has durable and matched.</summary>
    public void OnAck(FollowerProgress follower, Etag durable, bool recovering)
    {
        Invariant.Check(
            durable <= context.Journal.Last.Etag, $"Replica {follower.Replica} has {durable}, but this leader's journal ends at {context.Journal.Last.Name}.");
        if (!recovering)
        {
            follower.HeardUs = context.NowUs;
            follower.Acked = Etag.Max(follower.Acked, durable);
            follower.ToldToRecover &= durable < follower.Remembered;
            follower.AdvanceRound(context);
        }

        var before = follower.OutstandingBytes;
        follower.Release(durable);
        if (follower.OutstandingBytes < before)
            follower.MovedUs = context.NowUs;
    }

    /// <summary>The driver has sent bodies up to and including this record.</summary>
    public void OnBodiesSent(FollowerProgress follower, LogPosition last, long bytes)
    {
        if (!follower.Sending)
            return;
        follower.Sending = false;
        if (last == follower.Sent)
        {
            SendFromCheckpoint(follower);
            return;
        }

        Invariant.Check(
            last.Etag > follower.Sent.Etag && last.Etag <= context.Journal.Last.Etag,
            $"Replica {follower.Replica} was sent bodies up to {last} after {follower.Sent}, and the journal ends at {context.Journal.Last.Name}.");
        follower.Sent = last;
        follower.Enqueue(last.Etag, bytes, context.NowUs);
        follower.AdvanceRound(context);
    }

    /// <summary>A checkpoint is pinned for a follower.</summary>
    public void OnSnapshotOpened(FollowerProgress follower, LogPosition covers, long bytesTotal)
    {
        if (follower.State != FollowerState.Snapshot)
        {
            context.Emit(new Effect.CloseSnapshot(follower.Replica));
            return;
        }

        Invariant.Check(covers.Etag <= context.Committed, $"A checkpoint covers {covers}, but the committed etag is {context.Committed}.");
        follower.Covers = covers;
        follower.SnapshotBytes = bytesTotal;
        follower.SnapshotSent = follower.SnapshotStored = follower.SnapshotVerified = 0;
        follower.MovedUs = follower.SnapshotMovedUs = context.NowUs;
    }

    /// <summary>The checkpoint is no longer kept for the follower.</summary>
    public void OnSnapshotLost(FollowerProgress follower, LogPosition covers, string reason)
    {
        if (follower.State == FollowerState.Snapshot && follower.Covers == covers)
            GiveUpSnapshot(follower, reason);
    }

    /// <summary>The answer to a probe, or to bodies that do not follow what the follower has. It leads a step closer to the common record.</summary>
    public void OnMatch(FollowerProgress follower, Match match)
    {
        OnAck(follower, match.Durable.FromWire(), match.Recovering);
        var record = match.Record.FromWire();
        if (match.Found)
        {
            if (follower.State != FollowerState.Probe)
                return;
            if (TailMatch.Has(context.Journal, record))
                Continue(follower, record);
            else if (record == follower.Probe)
                // The probe was sent while the journal still reached back that far.
                SendFromCheckpoint(follower);
            return;
        }

        if (follower.State == FollowerState.Snapshot)
            return;
        var asked = follower.State == FollowerState.Probe ? follower.Probe : follower.Sent;
        // Said before it had what it has acknowledged since, and overtaken by that. A search from there would end at a snapshot, or send all of that again.
        if (record.Etag < follower.Acked && follower.Acked <= asked.Etag)
            return;
        // The follower lacks what an earlier process of it acknowledged. It lost records and must be told.
        follower.ToldToRecover |= asked.Etag <= follower.Remembered && record.Etag < follower.Remembered;
        if (!TailMatch.TryStepBack(context.Journal, asked, record, out var next, out var common))
        {
            SendFromCheckpoint(follower);
            return;
        }

        if (common && !follower.ToldToRecover)
        {
            Continue(follower, record);
            return;
        }

        Signal(follower, FollowerSignal.Differs);
        follower.Probe = next;
        SendProbe(follower);
    }

    /// <summary>The follower has a new process.</summary>
    public void OnRestarted(FollowerProgress follower)
    {
        context.Log($"replica {follower.Replica} has restarted");
        follower.Restart();
        Signal(follower, FollowerSignal.Restarted);
        // A probe for the greatest etag that the follower acknowledged shows at once whether it still has that record.
        var found = context.Journal.TryFind(follower.Remembered, out var remembered);
        follower.Probe = found && follower.Remembered != Etag.None ? remembered.Name : context.Journal.Last.Name;
        follower.ProbeDueUs = context.NowUs;
    }

    /// <summary>A part of a snapshot is stored or verified, or all of it is installed, or it failed at the follower.</summary>
    public void OnSnapshotAck(FollowerProgress follower, SnapshotAck ack)
    {
        if (follower.State != FollowerState.Snapshot || follower.Covers == default || ack.Covers.FromWire() != follower.Covers)
            return;
        if (ack.Installed)
        {
            var covers = follower.Covers;
            Signal(follower, FollowerSignal.Installed);
            follower.SnapshotsGivenUp = 0;
            follower.SnapshotDueUs = 0;
            follower.Probe = covers;
            follower.ProbeDueUs = context.NowUs;
            return;
        }

        if (ack.Fault != SnapshotFault.Unspecified)
        {
            // Each page's checksum was correct when it was sent. Only reading the whole tree tells whether each page is the one that belongs there.
            if (ack.Fault == SnapshotFault.Damaged)
                context.Emit(Effect.CheckPages.Instance);
            var reason = ack.Fault switch
            {
                SnapshotFault.NoRoom => "its disk has no space for it",
                SnapshotFault.Damaged => "it found the snapshot damaged",
                _ => "its disk failed",
            };
            // The follower checks for space with the first bytes, so retrying often costs nothing.
            GiveUpSnapshot(follower, reason, costsMuch: ack.Fault != SnapshotFault.NoRoom);
            return;
        }

        var (stored, verified) = (Math.Min((long)ack.BytesStored, follower.SnapshotBytes), (long)ack.BytesVerified);
        if (stored > follower.SnapshotStored || verified > follower.SnapshotVerified)
            follower.SnapshotMovedUs = context.NowUs;
        if (stored != follower.SnapshotStored || verified != follower.SnapshotVerified)
            follower.MovedUs = context.NowUs;
        // Less than before: the follower has started over, because of a new process or a new epoch.
        if (stored < follower.SnapshotStored)
            follower.SnapshotSent = stored;
        (follower.SnapshotStored, follower.SnapshotVerified) = (stored, verified);
    }

    /// <summary>Resends what seems lost.</summary>
    public void CheckStall(FollowerProgress follower)
    {
        if (follower.State == FollowerState.Snapshot && follower.Covers != default
            && context.NowUs - follower.SnapshotMovedUs >= context.Options.SnapshotPatienceUs)
        {
            GiveUpSnapshot(follower, $"it made no progress for {context.Options.SnapshotPatienceUs / 1_000_000} s");
            return;
        }

        if (context.NowUs - follower.MovedUs < context.Options.StallUs)
            return;
        if (follower.State == FollowerState.Replicate && follower.OutstandingBytes > 0)
        {
            Signal(follower, FollowerSignal.Stalled);
            follower.Probe = follower.Sent;
            follower.ProbeDueUs = context.NowUs;
        }
        else if (follower.State == FollowerState.Snapshot && follower.Covers != default)
        {
            Signal(follower, FollowerSignal.Stalled);
            follower.MovedUs = context.NowUs;
            follower.SnapshotSent = follower.SnapshotStored;
            // The whole snapshot is stored. Either it is being verified, or the message that it is installed was lost.
            if (follower.SnapshotStored == follower.SnapshotBytes)
                AskForSnapshot(follower);
        }
    }

    /// <summary>Sends what the follower can take now.</summary>
    public void SendTo(FollowerProgress follower)
    {
        switch (follower.State)
        {
            case FollowerState.Probe when context.NowUs >= follower.ProbeDueUs:
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

    /// <summary>Nothing more is sent to the follower. Its checkpoint is unpinned.</summary>
    public void Stop(FollowerProgress follower)
    {
        if (follower.State == FollowerState.Snapshot && follower.Covers != default)
            context.Emit(new Effect.CloseSnapshot(follower.Replica));
    }

    // The record is common, so the bodies that follow it are sent.
    private void Continue(FollowerProgress follower, LogPosition common)
    {
        Invariant.Check(
            TailMatch.Has(context.Journal, common), $"Bodies after {common} are to be sent to replica {follower.Replica}, but this leader does not have it.");
        Signal(follower, FollowerSignal.Common);
        follower.Sent = common;
        follower.ForgetBehind(common.Etag);
        follower.RestartRounds(context);
        follower.MovedUs = context.NowUs;
    }

    // The journal no longer has what the follower needs. Soon after a snapshot that was given up the follower is only probed, because it may have recovered.
    private void SendFromCheckpoint(FollowerProgress follower)
    {
        if (context.NowUs >= follower.SnapshotDueUs)
        {
            Signal(follower, FollowerSignal.OutOfReach);
            return;
        }

        if (follower.State == FollowerState.Replicate)
            follower.Probe = follower.Sent;
        Signal(follower, FollowerSignal.Stalled);
        follower.ProbeDueUs = follower.SnapshotDueUs;
    }

    // Giving up a snapshot harms nobody: the follower continues with what it has, and a newer checkpoint is sent later, from its beginning.
    private void GiveUpSnapshot(FollowerProgress follower, string reason, bool costsMuch = true)
    {
        context.Log($"replica {follower.Replica} did not receive the snapshot at {follower.Covers}: {reason}; it is sent again later");
        Signal(follower, FollowerSignal.GivenUp);
        var pauseUs = Math.Min(context.Options.SnapshotRetryUs << Math.Min(follower.SnapshotsGivenUp, 30), context.Options.SnapshotRetryMaxUs);
        follower.SnapshotsGivenUp += costsMuch ? 1 : 0;
        follower.SnapshotDueUs = context.NowUs + pauseUs;
        follower.Probe = context.Journal.Last.Name;
        // At once, because the journal may suffice by now.
        follower.ProbeDueUs = context.NowUs;
    }

    private void Signal(FollowerProgress follower, FollowerSignal signal)
    {
        var before = follower.State;
        follower.State = FollowerTransitions.Next(before, signal);
        if (follower.State == before)
            return;
        if (follower.Lines.MaySay(before, signal, context.NowUs, out var unsaid))
            context.Log($"replica {follower.Replica}: {before} to {follower.State} ({signal}){(unsaid == 0 ? "" : $"; {unsaid} more since the last one")}");
        if (before == FollowerState.Snapshot)
        {
            if (follower.Covers != default)
                context.Emit(new Effect.CloseSnapshot(follower.Replica));
            follower.Covers = default;
        }

        if (follower.State == FollowerState.Snapshot)
        {
            follower.ForgetBehind(Etag.None);
            context.Emit(new Effect.OpenSnapshot(follower.Replica));
        }
    }

    private void SendProbe(FollowerProgress follower)
    {
        follower.ProbeDueUs = context.NowUs + context.Options.HeartbeatIntervalUs;
        var frame = FrameTo(follower);
        frame.Probe = new Probe { Record = follower.Probe.ToWire(), Remembered = (follower.ToldToRecover ? follower.Remembered : Etag.None).ToWire() };
        context.Send(frame);
    }

    private void SendBodies(FollowerProgress follower)
    {
        var windowBytes = context.Options.WindowBytes - follower.OutstandingBytes;
        var node = context.View.NodeOf(follower.Replica);
        if (follower.Sending || windowBytes <= 0 || node.IsNone || follower.Sent.Etag >= context.Journal.Last.Etag)
            return;
        Invariant.Check(
            follower.Covers == default && follower.Acked <= context.Journal.Last.Etag,
            $"Replica {follower.Replica} is sent bodies while it has {follower.Acked} and takes a snapshot at {follower.Covers}.");
        follower.Sending = true;
        var frame = FrameTo(follower);
        frame.Append = new Append { Previous = follower.Sent.ToWire(), Committed = context.Committed.ToWire(), ShardTimeUs = context.Journal.ShardTimeUs };
        context.Emit(new Effect.SendBodies(node, frame, follower.Sent, (int)Math.Min(windowBytes, context.Options.FrameBytes)));
    }

    private void AskForSnapshot(FollowerProgress follower)
    {
        var frame = FrameTo(follower);
        frame.SnapshotChunk =
            new SnapshotChunk { Covers = follower.Covers.ToWire(), Offset = (ulong)follower.SnapshotBytes, BytesTotal = (ulong)follower.SnapshotBytes };
        context.Send(frame);
    }

    private void SendSnapshot(FollowerProgress follower)
    {
        var node = context.View.NodeOf(follower.Replica);
        while (follower.Covers != default
            && !node.IsNone
            && follower.SnapshotSent < follower.SnapshotBytes
            && follower.SnapshotSent - follower.SnapshotStored < context.Options.SnapshotWindowBytes)
        {
            var bytes = (int)Math.Min(context.Options.SnapshotChunkBytes, follower.SnapshotBytes - follower.SnapshotSent);
            var frame = FrameTo(follower);
            frame.SnapshotChunk = new SnapshotChunk
            {
                Covers = follower.Covers.ToWire(),
                Offset = (ulong)follower.SnapshotSent,
                BytesTotal = (ulong)follower.SnapshotBytes,
            };
            context.Emit(new Effect.SendSnapshotChunk(node, frame, bytes));
            follower.SnapshotSent += bytes;
        }
    }
}
