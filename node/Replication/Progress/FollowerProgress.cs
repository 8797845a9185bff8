using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.Progress;

/// <summary>What a leader knows of one other replica in its epoch, kept by replica id. Plain state; <c>Leader</c> decides.</summary>
internal sealed class FollowerProgress(ulong replica, LogPosition probe, long nowUs)
{
    private readonly Queue<(Etag Last, long Bytes)> _outstanding = new();
    private Etag _timed;

    public ulong Replica { get; } = replica;

    public FollowerState State { get; set; }

    /// <summary>The record asked for while probing.</summary>
    public LogPosition Probe { get; set; } = probe;

    /// <summary>When to ask again.</summary>
    public long ProbeDueUs { get; set; } = nowUs;

    /// <summary>The last record sent while replicating.</summary>
    public LogPosition Sent { get; set; }

    /// <summary>A <see cref="Effect.SendBodies"/> is being executed.</summary>
    public bool Sending { get; set; }

    /// <summary>Durable there and counted; 0 after a restart until it says so again.</summary>
    public Etag Acked { get; set; }

    /// <summary>The greatest etag it ever acknowledged in this epoch, while its process before a restart ran.</summary>
    public Etag Remembered { get; set; }

    /// <summary>It lacks what is remembered, and was told so with each probe.</summary>
    public bool ToldToRecover { get; set; }

    /// <summary>Bytes sent and not acknowledged.</summary>
    public long OutstandingBytes { get; private set; }

    /// <summary>Last time an acknowledgement rose, or the first byte was sent into an empty window.</summary>
    public long MovedUs { get; set; } = nowUs;

    /// <summary>Last time it answered in this epoch, as a replica that counts.</summary>
    public long HeardUs { get; set; } = nowUs;

    /// <summary>Its grant runs until then by the leader's clock.</summary>
    public long GrantEndUs { get; set; }

    /// <summary>The greatest heartbeat round answered.</summary>
    public ulong Round { get; set; }

    /// <summary>Its disk is slow or full, or its tree doubted, as it said last.</summary>
    public bool DiskImpaired { get; set; }

    /// <summary>How long it takes of late until a record is durable there and the leader knows; 0: not known.</summary>
    public long AckUs { get; private set; }

    /// <summary>Its newest question up to where it must have applied; 0: none waits for an answer.</summary>
    public ulong ReadIndexAsked { get; set; }

    /// <summary>The round that confirms the leader for that question.</summary>
    public ulong ReadIndexRound { get; set; }

    /// <summary>The snapshot under way; default: not opened yet.</summary>
    public LogPosition Covers { get; set; }

    public long SnapshotBytes { get; set; }

    public long SnapshotSent { get; set; }

    public long SnapshotStored { get; set; }

    /// <summary>Of a snapshot that is stored, what the follower has verified.</summary>
    public long SnapshotVerified { get; set; }

    /// <summary>Last time that more of it was stored or verified, or that it was opened.</summary>
    public long SnapshotMovedUs { get; set; }

    /// <summary>No further snapshot is opened for it before.</summary>
    public long SnapshotDueUs { get; set; }

    /// <summary>Snapshots that were given up since one was installed, but for those that had no room.</summary>
    public int SnapshotsGivenUp { get; set; }

    /// <summary>The process that speaks for it; 0: none has spoken.</summary>
    public ulong Incarnation { get; private set; }

    /// <summary>
    /// Takes note of the process that speaks. False: one that ended, drop its frame, which was under way. Incarnations rise, so this holds also
    /// when the later process was the first to be heard of.
    /// </summary>
    public bool TryHear(ulong incarnation, out bool restarted)
    {
        restarted = Incarnation != 0 && incarnation > Incarnation;
        if (incarnation < Incarnation)
            return false;
        Incarnation = incarnation;
        return true;
    }

    /// <summary>Takes note of the record that the leader times. A slow one shows at once and fades over some others.</summary>
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
        _outstanding.Enqueue((last, bytes));
        OutstandingBytes += bytes;
    }

    /// <summary>What is acknowledged is not outstanding any more.</summary>
    public void Release(Etag acknowledged)
    {
        while (_outstanding.TryPeek(out var first) && first.Last <= acknowledged)
        {
            OutstandingBytes -= first.Bytes;
            _outstanding.Dequeue();
        }
    }

    /// <summary>What was sent behind this record is lost.</summary>
    public void ForgetBehind(Etag last)
    {
        var kept = _outstanding.Where(sent => sent.Last <= last).ToArray();
        _outstanding.Clear();
        OutstandingBytes = 0;
        foreach (var sent in kept)
            Enqueue(sent.Last, sent.Bytes, MovedUs);
    }

    /// <summary>Another process: what the one before had acknowledged is remembered, and does not count until said again.</summary>
    public void Restart()
    {
        Remembered = Etag.Max(Remembered, Acked);
        Acked = Etag.None;
        GrantEndUs = 0;
        ReadIndexAsked = 0;
        ForgetBehind(Etag.None);
    }
}
