using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// The shard times that this replica has heard from leaders, and when. A new leader continues from the one that was sent in the epoch of its own last record:
/// what another epoch's leader counts says nothing of the records that this replica has (INVARIANTS.md, "Shard time"). One per replica, kept in memory only;
/// called within the core's steps.
/// </summary>
internal sealed class ShardTimes(ReplicaContext context)
{
    private (ulong Epoch, HeardShardTime Heard, long AtUs) _newest;

    // The time last heard in the epoch of the journal's last record, kept when a time of a later epoch is heard of which the journal has no record yet.
    private (ulong Epoch, HeardShardTime Heard, long AtUs) _before;

    /// <summary>A leader of the promised epoch says what time it is, or this replica does, which led it.</summary>
    /// <param name="epoch">The epoch.</param>
    /// <param name="microseconds">The shard time; 0: the leader's program knows of none.</param>
    public void Hear(ulong epoch, long microseconds)
    {
        // Frames may overtake each other. What was sent last has the greatest time.
        if (microseconds == 0 || epoch < _newest.Epoch || (epoch == _newest.Epoch && microseconds <= _newest.Heard.Microseconds))
            return;
        if (epoch > _newest.Epoch && _newest.Epoch == context.Journal.Last.Etag.Epoch)
            _before = _newest;
        _newest = (epoch, new HeardShardTime(microseconds, 0), context.NowUs);
    }

    /// <summary>What a leadership that begins now continues from; the default if nothing was heard in the epoch of the last record.</summary>
    public HeardShardTime OfLastRecord()
    {
        var epoch = context.Journal.Last.Etag.Epoch;
        var known = epoch == _newest.Epoch ? _newest : epoch == _before.Epoch ? _before : default;
        return known.Heard with { AgoUs = known.Heard.Microseconds == 0 ? 0 : context.NowUs - known.AtUs };
    }
}
