using KvCluster.Internal.V1;
using KvCluster.Replication.Following;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// What this replica answers to candidates: to a pre-vote, to Prepare, and with its tail. The answer to a Prepare is only owed here; it is given by
/// <see cref="Promises.Answer"/> once the promise is synced. Called within the core's steps.
/// </summary>
/// <param name="context">The replica.</param>
/// <param name="contact">When it heard a leader.</param>
/// <param name="promises">Its promises.</param>
/// <param name="election">Its own election, whose timer starts again when it supports another's.</param>
/// <param name="fencing">Refuses candidates of lower epochs.</param>
/// <param name="follower">Its journal under the promised leader.</param>
/// <param name="truncation">Its truncations.</param>
/// <param name="obey">Promises an epoch to a process of a replica.</param>
internal sealed class Voter(
    ReplicaContext context, LeaderContact contact, Promises promises, Election election, EpochFencing fencing, Follower follower, TailTruncation truncation,
    Action<ulong, ReplicaId, ulong> obey)
{
    /// <summary>A replica asks whether it may campaign.</summary>
    /// <param name="frame">The pre-vote.</param>
    /// <param name="leads">Whether this replica leads.</param>
    public void OnPreVote(Frame frame, bool leads)
    {
        var granted = !leads && contact.IsSilent(context.Options, context.NowUs) && context.Counts;
        if (granted)
            election.RestartTimer();
        var answer = context.FrameTo(frame.SenderId, Math.Max(context.EpochSeen, context.Promised));
        answer.PreVoteAnswer = new PreVoteAnswer { Number = frame.PreVote.Number, Granted = granted };
        context.Send(answer);
    }

    /// <summary>A replica that has won an epoch asks for the promise to obey it.</summary>
    public void OnPrepare(Frame frame)
    {
        var control = context.Control.Wanted;
        if (frame.Generation < Math.Max(control.Generation, context.View.Record.Generation))
            return;
        if (fencing.Refuses(frame))
            return;
        election.RestartTimer();
        if (frame.Epoch == control.PromisedEpoch)
        {
            // The candidate gets the same answer again. Nothing was acknowledged in a lower epoch since the first time.
            if (control.PromisedLeader == frame.SenderId && control.PromisedIncarnation == frame.SenderIncarnation)
                promises.OweAnswer(frame.SenderId);
            return;
        }

        if (!promises.Free)
        {
            promises.Hold(frame);
            return;
        }

        obey(frame.Epoch, frame.SenderId, frame.SenderIncarnation);
        promises.OweAnswer(frame.SenderId);
    }

    /// <summary>The candidate of the promised epoch asks for what follows one of its records.</summary>
    public void OnFetchTail(Frame frame)
    {
        var control = context.Control.Synced;
        if (frame.Epoch != context.Promised || !context.Control.PromiseSynced || control.PromisedLeader != frame.SenderId
            || control.PromisedIncarnation != frame.SenderIncarnation || truncation.Busy || follower.Snapshots.Installing)
            return;
        var after = frame.FetchTail.After.FromWire();
        var answer = context.FrameTo(frame.SenderId, frame.Epoch);
        if (TailMatch.Has(context.Journal, after))
        {
            answer.Tail = new Tail { Found = true, After = after.ToWire() };
            context.Emit(new Effect.SendBodies(context.View.NodeOf(frame.SenderId), answer, after, context.Options.FrameBytes));
            return;
        }

        var found = context.Journal.TryFindAtOrBefore(after.Etag, out var own);
        answer.Tail = new Tail { After = own.Name.ToWire(), Gone = !found };
        context.Send(answer);
    }

    /// <summary>Handles a Prepare that was held, once no grant runs.</summary>
    public void Advance()
    {
        if (promises.TryRelease(out var held))
            OnPrepare(held);
    }
}
