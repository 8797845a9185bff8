using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Progress;

/// <summary>What a leader knows of one other replica in its epoch, kept by replica id. Plain state; <c>Leader</c> decides.</summary>
internal sealed class FollowerProgress(ReplicaId replica, LogPosition probe, long nowUs)
{
    // Frames sent and not acknowledged, with increasing etags; their bytes are OutstandingBytes.
    private readonly Queue<(Etag Last, long Bytes)> _outstanding = new();
    private CatchUpRounds _rounds = new();
    private Etag _timed;

    public ReplicaId Replica { get; } = replica;

    /// <summary>Changed along <see cref="FollowerTransitions"/> only.</summary>
    public FollowerState State { get; set; }

    /// <summary>Bounds what is logged of the changes of <see cref="State"/>.</summary>
    public TransitionLines Lines { get; } = new();

    /// <summary>The record named in the current probe. One search for the common record only goes back.</summary>
    public LogPosition Probe { get; set; } = probe;

    /// <summary>When to probe again.</summary>
    public long ProbeDueUs { get; set; } = nowUs;

    /// <summary>
    /// The last record sent while replicating. It is in the leader's journal, and the follower has, or was sent, everything from the common record up to it.
    /// </summary>
    public LogPosition Sent { get; set; }

    /// <summary>A <see cref="Effect.SendBodies"/> is being executed. One at a time, because the next one begins where it ends.</summary>
    public bool Sending { get; set; }

    /// <summary>
    /// Durable there, matched, and counted (R7, R8). Never beyond the leader's journal. It rises within a process of the follower; after a restart it is 0
    /// until the follower acknowledges again.
    /// </summary>
    public Etag Acked { get; set; }

    /// <summary>The greatest etag that its processes before the last restart acknowledged in this epoch. Never decreases (R4).</summary>
    public Etag Remembered { get; set; }

    /// <summary>The follower lacks records up to the remembered etag, and every probe says so, until it has acknowledged them again (R4).</summary>
    public bool ToldToRecover { get; set; }

    /// <summary>Bytes sent and not acknowledged: at most <see cref="ReplicationOptions.WindowBytes"/> and one body.</summary>
    public long OutstandingBytes { get; private set; }

    /// <summary>When an acknowledgement last rose, or the first byte was sent into an empty window.</summary>
    public long MovedUs { get; set; } = nowUs;

    /// <summary>When the follower last answered in this epoch as a replica that counts.</summary>
    public long HeardUs { get; set; } = nowUs;

    /// <summary>
    /// When its grant ends by the leader's clock, counted from the sending of the round: before it ends at the follower (R13). 0 after a restart.
    /// </summary>
    public long GrantEndUs { get; set; }

    /// <summary>The greatest heartbeat round answered. Never decreases, and is never a round that was not sent (R15).</summary>
    public ulong Round { get; set; }

    /// <summary>The follower last reported that its disk is slow or full, or its tree doubted.</summary>
    public bool DiskImpaired { get; set; }

    /// <summary>The recent time until a record was durable there and the leader knew; 0 if not known.</summary>
    public long AckUs { get; private set; }

    /// <summary>The number of its newest read-index request; 0 if none waits for an answer.</summary>
    public ulong ReadIndexAsked { get; set; }

    /// <summary>The round that confirms the leader for that request, sent after it arrived; 0 if the lease did (R17).</summary>
    public ulong ReadIndexRound { get; set; }

    /// <summary>
    /// The log position of the snapshot in progress, which is committed; default outside <see cref="FollowerState.Snapshot"/>, or if not opened yet.
    /// </summary>
    public LogPosition Covers { get; set; }

    public long SnapshotBytes { get; set; }

    /// <summary>
    /// At most <see cref="SnapshotBytes"/>, and ahead of what is stored by no more than <see cref="ReplicationOptions.SnapshotWindowBytes"/> and a chunk.
    /// </summary>
    public long SnapshotSent { get; set; }

    /// <summary>What the follower reports. It falls when the follower starts over, in a new process or epoch.</summary>
    public long SnapshotStored { get; set; }

    /// <summary>Snapshot bytes that the follower has verified, after all are stored.</summary>
    public long SnapshotVerified { get; set; }

    /// <summary>When more of it was last stored or verified, or when it was opened.</summary>
    public long SnapshotMovedUs { get; set; }

    /// <summary>No further snapshot is opened for the follower before this time.</summary>
    public long SnapshotDueUs { get; set; }

    /// <summary>Snapshots given up since one was installed, not counting those for which there was no space.</summary>
    public int SnapshotsGivenUp { get; set; }

    /// <summary>The newest incarnation heard from; 0 if none.</summary>
    public ulong Incarnation { get; private set; }

    /// <summary>
    /// Whether the follower follows closely: it is sent bodies as they are appended, and lacks no more than one frame of them, or no more than was appended
    /// within a heartbeat interval. This one rule decides when a learner may become a voter, and when a leader may end serving for its successor. Writes wait
    /// in both cases until the follower has what it lacks. A limit in bytes alone is never met behind a busy leader.
    /// </summary>
    public bool FollowsClosely(ReplicaContext context) => State == FollowerState.Replicate
        && ((Sent.Etag >= context.Journal.Last.Etag && OutstandingBytes <= context.Options.FrameBytes)
            || _rounds.LagUs(context.NowUs) <= context.Options.HeartbeatIntervalUs);

    /// <summary>The follower has acknowledged more, or was sent more.</summary>
    public void AdvanceRound(ReplicaContext context) => _rounds.Advance(Acked, context.Journal.Last.Etag, context.NowUs);

    /// <summary>The follower is sent bodies from here on. How fast it follows is not known yet.</summary>
    public void RestartRounds(ReplicaContext context)
    {
        _rounds = new CatchUpRounds();
        AdvanceRound(context);
    }

    /// <summary>
    /// Notes the process that sent a frame. False if that process has ended and its frame, still under way, must be dropped. Incarnations increase, so this
    /// also holds if the later process was heard from first.
    /// </summary>
    public bool TryHear(ulong incarnation, out bool restarted)
    {
        restarted = Incarnation != 0 && incarnation > Incarnation;
        if (incarnation < Incarnation)
            return false;
        Incarnation = incarnation;
        return true;
    }

    /// <summary>Notes the time of the record that the leader times. A slow record shows at once and fades over the next ones.</summary>
    public void NoteAck(Etag timed, long tookUs)
    {
        if (_timed == timed)
            return;
        _timed = timed;
        AckUs = Math.Max(tookUs, AckUs - (AckUs / 4));
    }

    public void Enqueue(Etag last, long bytes, long nowUs)
    {
        if (_outstanding.Count == 0)
            MovedUs = nowUs;
        Invariant.Check(bytes >= 0, $"{bytes} bytes were sent to replica {Replica}.");
        _outstanding.Enqueue((last, bytes));
        OutstandingBytes += bytes;
    }

    /// <summary>Removes what is acknowledged from what is outstanding.</summary>
    public void Release(Etag acknowledged)
    {
        while (_outstanding.TryPeek(out var first) && first.Last <= acknowledged)
        {
            OutstandingBytes -= first.Bytes;
            _outstanding.Dequeue();
        }

        Invariant.Check(
            OutstandingBytes >= 0 && (_outstanding.Count > 0 || OutstandingBytes == 0),
            $"{OutstandingBytes} bytes in {_outstanding.Count} frames are outstanding to replica {Replica}.");
    }

    /// <summary>Removes what was sent after this record from what is outstanding; it is considered lost.</summary>
    public void ForgetBehind(Etag last)
    {
        var kept = _outstanding.Where(sent => sent.Last <= last).ToArray();
        _outstanding.Clear();
        OutstandingBytes = 0;
        foreach (var sent in kept)
            Enqueue(sent.Last, sent.Bytes, MovedUs);
    }

    /// <summary>The follower has a new process. What the one before acknowledged is remembered, but does not count until acknowledged again.</summary>
    public void Restart()
    {
        Remembered = Etag.Max(Remembered, Acked);
        Acked = Etag.None;
        GrantEndUs = 0;
        ReadIndexAsked = 0;
        ForgetBehind(Etag.None);
    }
}
