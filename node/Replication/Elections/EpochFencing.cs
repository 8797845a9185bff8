using KvCluster.Internal.V1;
using KvCluster.Replication.Leading;
using KvCluster.Replication.Reconfiguration;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// How an old epoch ends. Whoever gets a frame of a lower epoch than it has promised does nothing for its sender but tell it of the higher epoch (R3), and a
/// deposed leader or a late candidate that is told so stops. Called within the core's steps.
/// </summary>
/// <param name="context">The replica.</param>
/// <param name="record">Asked where the shard's record has to say who leads.</param>
/// <param name="leadership">Whether this replica leads.</param>
/// <param name="election">Its own election.</param>
/// <param name="obey">Promises an epoch to a process of a replica.</param>
/// <param name="stopLeading">Ends this replica's leadership for a reason.</param>
internal sealed class EpochFencing(
    ReplicaContext context, RecordAdoption record, Leadership leadership, Election election, Action<ulong, ReplicaId, ulong> obey, Action<string> stopLeading)
{
    /// <summary>Whether a frame is of a lower epoch than the promised one. Its sender is told of that one, and the frame must change nothing.</summary>
    public bool Refuses(Frame frame)
    {
        if (frame.Epoch >= context.Promised)
            return false;
        var answer = context.FrameTo(frame.SenderId, context.Promised);
        answer.Fenced = new Fenced();
        context.Send(answer);
        return true;
    }

    /// <summary>
    /// Whether the sender of a leader's frame is obeyed. A frame of a higher epoch is accepted at once, even while a grant runs: a majority prepared its
    /// leader, so the older leader has no lease.
    /// </summary>
    public bool TryObeyLeader(Frame frame)
    {
        if (Refuses(frame))
            return false;
        var control = context.Control.Wanted;
        if (frame.Epoch > control.PromisedEpoch)
        {
            obey(frame.Epoch, frame.SenderId, frame.SenderIncarnation);
            return true;
        }

        if (!control.PromisedLeader.IsNone)
            return control.PromisedLeader == frame.SenderId && control.PromisedIncarnation == frame.SenderIncarnation;
        if (!context.View.Names(frame.Epoch, frame.SenderId, frame.SenderIncarnation))
        {
            record.Ask();
            return false;
        }

        obey(frame.Epoch, frame.SenderId, frame.SenderIncarnation);
        return true;
    }

    /// <summary>Another replica has refused a frame of this one, because it has promised this epoch.</summary>
    public void OnFenced(ulong epoch)
    {
        if (leadership.Leader is { } leader && epoch > leader.Epoch)
            stopLeading($"fenced by epoch {epoch}");
        election.Fenced(epoch);
    }
}
