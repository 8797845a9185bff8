using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// What happens when a tail diverges, as <c>TailMatch.Of</c> finds: one truncation of this replica's journal, as a follower (<c>Follower.BeginTruncation</c>)
/// or a candidate (<c>TailFetch</c>). First the acknowledged etag in the control file is lowered and synced, then the journal is truncated, then the new
/// segment's header is synced. Until then nothing is appended, acknowledged or answered.
/// </summary>
internal sealed class TailTruncation(ReplicaContext context)
{
    // While a truncation is wanted: in the journal, common with the leader of the epoch, and not below the committed etag (R11).
    private LogPosition _keep;
    private ulong _epoch;
    private bool _wanted;
    private bool _issued;

    /// <summary>A truncation is wanted or in progress.</summary>
    public bool Busy => _wanted;

    /// <summary>
    /// Begins to truncate after a record that is common with the leader of <paramref name="epoch"/>. False if refused. Truncating what is committed would
    /// be corruption, so the replica halts. A record of the leader's own epoch or above cannot be foreign, so an alarm is raised.
    /// </summary>
    public bool TryBegin(LogPosition keep, ulong epoch)
    {
        Invariant.Check(!_wanted, "A truncation begins while another is in progress.");
        var last = context.Journal.Last;
        if (keep.Etag < context.Committed)
        {
            context.Emit(
                new Effect.Halt($"the journal agrees with the leader of epoch {epoch} only up to {keep}, below the committed etag {context.Committed}"));
            return false;
        }

        if (last.Etag.Epoch >= epoch)
        {
            context.Emit(new Effect.Alarm($"refused to truncate the journal from {last.Name}, a record of epoch {epoch} or above, to {keep}"));
            return false;
        }

        Invariant.Check(keep.Etag < last.Etag, $"The journal ends at {last.Name} and is to be truncated to {keep}.");
        context.Log($"truncating the journal from {last.Name} to {keep} in epoch {epoch}");
        _keep = keep;
        _epoch = epoch;
        _wanted = true;
        // The mark may stay lowered without a truncation if the epoch ends first, because the records after it were shown not to be committed.
        // A recovering replica keeps its mark of what it lost, so that a restart finds it too.
        if (!context.Recovering && context.Control.Wanted.Acknowledged > keep.Etag)
            context.Control.Require(context.Control.Wanted with { Acknowledged = keep.Etag });
        return true;
    }

    /// <summary>The epoch changed. A truncation that has not reached the journal is cancelled; one that has must finish.</summary>
    public void Abandon() => _wanted = _issued;

    /// <summary>Issues the truncation once the control file allows it.</summary>
    public void Pump()
    {
        if (!_wanted || _issued || context.Control.Frozen)
            return;
        if (!context.Recovering && !context.Control.AcknowledgedAtMost(_keep.Etag))
            return;
        Invariant.Check(_keep.Etag >= context.Committed, $"The journal is truncated to {_keep}, below the committed etag {context.Committed}.");
        _issued = true;
        context.Emit(new Effect.Truncate(_keep));
    }

    /// <summary>
    /// The new segment's header is synced. Returns the record kept and the epoch of the truncation. The record is known to be common with that epoch's leader
    /// only.
    /// </summary>
    public (LogPosition Kept, ulong Epoch) Done()
    {
        Invariant.Check(_issued, "A truncation completed that was not requested.");
        Invariant.Check(context.Journal.Last.Name == _keep, $"The journal was truncated to {_keep} and ends at {context.Journal.Last.Name}.");
        _issued = _wanted = false;
        return (_keep, _epoch);
    }
}
