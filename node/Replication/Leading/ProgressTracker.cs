using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// What a leader knows of the other replicas, and what a majority of the voters has reached by it. One per epoch; called within the core's steps. The functions
/// are created once, because some of these are asked at every event.
/// </summary>
internal sealed class ProgressTracker
{
    private readonly ReplicaContext _context;
    private readonly Dictionary<ReplicaId, FollowerProgress> _followers = [];
    private readonly Func<ReplicaId, Etag> _durableOfOther;
    private readonly Func<ReplicaId, long> _heardOf;
    private readonly Func<ReplicaId, long> _grantOf;
    private readonly Func<ReplicaId, ulong> _roundOf;

    public ProgressTracker(ReplicaContext context, Quorum voters, DigestComparison digests, ReadRounds rounds)
    {
        _context = context;
        Voters = voters;
        DurableOf = id => id == context.Self ? context.Journal.Durable.Etag
            : !_followers.TryGetValue(id, out var follower) || digests.IsCondemned(id) ? Etag.None
            : follower.Acked;
        _durableOfOther = id => id == context.Self ? Etag.None : DurableOf(id);
        _heardOf = id => id == context.Self ? long.MaxValue : _followers.TryGetValue(id, out var follower) ? follower.HeardUs : 0;
        _grantOf = id => id == context.Self ? long.MaxValue : _followers.TryGetValue(id, out var follower) ? follower.GrantEndUs : 0;
        _roundOf = id => id == context.Self ? rounds.Newest : _followers.TryGetValue(id, out var follower) ? follower.Round : 0;
    }

    /// <summary>The voters that decide now: one set, or both while a change of them is in progress.</summary>
    public Quorum Voters { get; private set; }

    /// <summary>All other replicas of the shard's record.</summary>
    public Dictionary<ReplicaId, FollowerProgress>.ValueCollection All => _followers.Values;

    /// <summary>All other replicas of the shard's record, by replica id.</summary>
    public IReadOnlyDictionary<ReplicaId, FollowerProgress> ById => _followers;

    /// <summary>What a replica has durable and matched; nothing if its tree is known to be wrong.</summary>
    public Func<ReplicaId, Etag> DurableOf { get; }

    /// <summary>When a majority was last heard.</summary>
    public long HeardUs => Voters.Agreed(_heardOf);

    /// <summary>Until when a majority has granted the lease, by this replica's clock.</summary>
    public long GrantEndUs => Voters.Agreed(_grantOf);

    /// <summary>The newest heartbeat round that a majority has answered.</summary>
    public ulong Round => Voters.Agreed(_roundOf);

    public bool TryGet(ReplicaId replica, out FollowerProgress follower) => _followers.TryGetValue(replica, out follower!);

    /// <summary>These voters decide from here on.</summary>
    public void Decide(Quorum voters) => Voters = voters;

    /// <summary>Begins to follow the progress of the record's replicas that are not known yet.</summary>
    /// <param name="probe">The record with which the search for the last common one begins.</param>
    public void AddNew(LogPosition probe)
    {
        foreach (var replica in _context.View.Record.Replicas)
        {
            if (replica.ReplicaId != _context.Self && !_followers.ContainsKey(replica.ReplicaId))
                _followers[replica.ReplicaId] = new FollowerProgress(replica.ReplicaId, probe, _context.NowUs);
        }
    }

    /// <summary>Removes the replicas that the record no longer names, and returns them.</summary>
    public IReadOnlyList<FollowerProgress> RemoveGone()
    {
        var gone = _followers.Values.Where(follower => !_context.View.Contains(follower.Replica)).ToList();
        foreach (var follower in gone)
            _followers.Remove(follower.Replica);
        return gone;
    }

    /// <summary>Whether a voter follows this leader closely enough to take over, or a learner to become one.</summary>
    public bool FollowsClosely(ReplicaId replica) => _followers.TryGetValue(replica, out var follower) && follower.FollowsClosely(_context);

    /// <summary>Compares how long the record being timed took in this replica's journal and in the others'.</summary>
    public void ComparePace()
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

        pace.Lead(_context.Journal.Durable.Etag, _context.Journal.DurableAtUs, Voters.Agreed(_durableOfOther), _context.Committed, _context.NowUs);
        if (pace.Timed == timed)
            return;
        foreach (var follower in _followers.Values)
            follower.NoteAck(timed, tookUs);
    }
}
