namespace KvCluster.Replication.Protocol;

/// <summary>Times and windows of the protocol. The same on all replicas of a shard, except where a frame carries the value.</summary>
internal sealed record ReplicationOptions
{
    /// <summary>Between heartbeats of a leader. A sixth of the least timeout: five may be lost before anyone stands.</summary>
    public long HeartbeatIntervalUs { get; init; } = 100_000;

    /// <summary>
    /// Between heartbeats of a leader that rests: nothing was asked of it for <see cref="RestAfterUs"/> and all replicas are level. So many idle shards
    /// cost next to nothing. That a resting leader's node is gone, the followers' driver tells (<see cref="Event.NodeSilent"/>); without that they
    /// stand after three of these. A resting leader has no lease: its first read takes a round. 0: leaders never rest.
    /// </summary>
    public long RestIntervalUs { get; init; } = 5_000_000;

    /// <summary>How long nothing must have been asked of a leader before it rests.</summary>
    public long RestAfterUs { get; init; } = 2_000_000;

    /// <summary>A follower stands after a random time without its leader from here ...</summary>
    public long TimeoutLeastUs { get; init; } = 600_000;

    /// <summary>... to here: a killed leader is replaced within two seconds also when the first candidate fails.</summary>
    public long TimeoutGreatestUs { get; init; } = 1_200_000;

    /// <summary>
    /// A grant's length for the leader. Shorter than the least timeout, drift included, so that a follower's own grant never delays its
    /// standing; longer than four heartbeats, so that reads need no round of their own while heartbeats come through. 0: no leases.
    /// </summary>
    public long LeaseUs { get; init; } = 500_000;

    /// <summary>How far a replica's clock may run from true time, in thousandths. A grant is kept longer by twice that.</summary>
    public int ClockDriftPermille { get; init; } = 50;

    /// <summary>Bytes sent to a follower and not acknowledged. 4 MiB keep 200 MB/s busy over 20 ms of sync and network.</summary>
    public long WindowBytes { get; init; } = 4 << 20;

    /// <summary>Bytes of bodies in one frame, at least one body: enough to fill a write, small enough not to hold up heartbeats.</summary>
    public int FrameBytes { get; init; } = 256 << 10;

    /// <summary>Bytes of a snapshot in one frame.</summary>
    public int SnapshotChunkBytes { get; init; } = 256 << 10;

    /// <summary>Snapshot bytes sent and not stored yet.</summary>
    public long SnapshotWindowBytes { get; init; } = 2 << 20;

    /// <summary>
    /// A snapshot of which nothing was stored or verified for so long is given up, and the checkpoint let go: a follower that is there needs some seconds at most,
    /// also for a sync on a slow disk, and one that is gone must not hold back pages and journal.
    /// </summary>
    public long SnapshotPatienceUs { get; init; } = 60_000_000;

    /// <summary>
    /// After a snapshot that was given up the next one is opened so much later: a full disk does not empty sooner. Where it was not room that was missing, twice as
    /// late each time up to <see cref="SnapshotRetryMostUs"/>, as a large shard that fails again and again costs network and disk.
    /// </summary>
    public long SnapshotRetryUs { get; init; } = 5_000_000;

    /// <summary>The longest such pause: some minutes, in which an operator has made room.</summary>
    public long SnapshotRetryMostUs { get; init; } = 300_000_000;

    /// <summary>
    /// A follower that has bytes outstanding and moved nowhere for this long is probed anew: frames were lost. Three heartbeats, above any
    /// ordinary sync.
    /// </summary>
    public long StallUs { get; init; } = 300_000;

    /// <summary>
    /// Committed and acknowledged etags go into the control file at most this often when nothing else is written. They only speed up
    /// recovery and show lost tails, so one small sync a second is enough.
    /// </summary>
    public long ControlIntervalUs { get; init; } = 1_000_000;

    /// <summary>Without an answer of the coordinator: ask again after this.</summary>
    public long CoordinatorRetryUs { get; init; } = 200_000;

    /// <summary>Heartbeat rounds whose send time is remembered. An answer to an older round counts as contact only.</summary>
    public int RoundsKept { get; init; } = 64;

    /// <summary>
    /// A leader compares its voters' digests so long after it last did, a quarter more or less by chance. Reading a tree costs a fraction of a core and of
    /// a disk for as long as it takes, and trees differ only by a bug or by memory that fails. 0: never.
    /// </summary>
    public long DigestIntervalUs { get; init; } = 3_600_000_000;

    /// <summary>A comparison is judged by what has come after this: trees of 200 GB are through, which are read at 10 MB/s on a machine that is busy.</summary>
    public long DigestTimeUs { get; init; } = 21_600_000_000;

    /// <summary>Who has not reported a digest is asked again after this; it starts nothing anew there.</summary>
    public long DigestRepeatUs { get; init; } = 3_000_000;

    /// <summary>What decides where the simulation plants bugs.</summary>
    public ReplicaRules Rules { get; init; } = ReplicaRules.Own;

    /// <summary>
    /// How long a follower keeps a grant of this length: neither clock's drift may end it before the leader's count does. In whole milliseconds, as the control
    /// file keeps the longest one.
    /// </summary>
    public long LengthenedByDrift(long leaseUs) =>
        ((leaseUs + (2 * leaseUs * ClockDriftPermille / (1000 - ClockDriftPermille))) / 1_000 + 1) * 1_000;
}
