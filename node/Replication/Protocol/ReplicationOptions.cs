namespace KvCluster.Replication.Protocol;

/// <summary>Times and windows of the protocol. They must be the same on all replicas of a shard, except where a frame carries the value.</summary>
internal sealed record ReplicationOptions
{
    /// <summary>Interval between a leader's heartbeats. A sixth of the shortest timeout, so that five may be lost before anyone campaigns.</summary>
    public long HeartbeatIntervalUs { get; init; } = 100_000;

    /// <summary>
    /// A leader whose node has many sends heartbeats in one of at most this many intervals, so that a lease does not end when one round is lost.
    /// </summary>
    public int HeartbeatsEveryMax => LeaseUs > 0 ? (int)Math.Clamp(LeaseUs / 2 / HeartbeatIntervalUs, 1, 2) : 2;

    /// <summary>
    /// How long a round that asks no more followers than make a majority may be unanswered before all are asked. More than a round trip in one region takes,
    /// and so short that reads hardly notice a follower that has just stopped. Between regions all are asked while the few still answer, which costs what it
    /// did without this.
    /// </summary>
    public long FewAnswerUs { get; init; } = 10_000;

    /// <summary>
    /// Interval between heartbeats of a quiescent leader: nothing was asked of it for <see cref="QuiescentAfterUs"/> and all replicas are level. This makes
    /// many quiescent shards cost next to nothing. The followers' driver reports when a quiescent leader's node is gone (<see cref="Event.NodeSilent"/>). If it
    /// does not, they campaign after three of these intervals. A quiescent leader has no lease, so its first read takes a round trip. 0: leaders never become
    /// quiescent.
    /// </summary>
    public long QuiescentIntervalUs { get; init; } = 5_000_000;

    /// <summary>How long a leader must have had nothing to do before it becomes quiescent.</summary>
    public long QuiescentAfterUs { get; init; } = 2_000_000;

    /// <summary>Lower bound of the random time after which a follower without a leader campaigns.</summary>
    public long TimeoutMinUs { get; init; } = 600_000;

    /// <summary>Upper bound of that time. The leaders of a killed node are replaced within two seconds even if the first candidate fails.</summary>
    public long TimeoutMaxUs { get; init; } = 1_200_000;

    /// <summary>
    /// Length of a grant for the leader. Shorter than the shortest timeout, drift included, so that a follower's own grant never delays its
    /// campaign. Longer than four heartbeats, or two of a leader whose node has many, so that reads need no round of their own while those get through. 0: no
    /// leases.
    /// </summary>
    public long LeaseUs { get; init; } = 500_000;

    /// <summary>How far the rate of a replica's clock may differ from true time, in thousandths. A grant is kept longer by twice that.</summary>
    public int ClockDriftPermille { get; init; } = 50;

    /// <summary>
    /// Bytes sent to a follower and not acknowledged, before the last body of them. 4 MiB keep 200 MB/s busy over 20 ms of sync and network. With twice that a
    /// value of 8 MB is followed by another one before it is acknowledged, and both are still in the memory that a store has for such bodies.
    /// </summary>
    public long WindowBytes { get; init; } = 8 << 20;

    /// <summary>Bytes of bodies in one frame, at least one body. Large enough to fill a write, small enough not to delay heartbeats.</summary>
    public int FrameBytes { get; init; } = 256 << 10;

    /// <summary>Bytes of a snapshot in one frame.</summary>
    public int SnapshotChunkBytes { get; init; } = 256 << 10;

    /// <summary>Snapshot bytes sent and not yet stored.</summary>
    public long SnapshotWindowBytes { get; init; } = 2 << 20;

    /// <summary>
    /// A snapshot of which nothing was stored or verified for this long is given up, and its checkpoint is unpinned. A follower that is alive needs some
    /// seconds at most, even for a sync on a slow disk; one that is gone must not hold back pages and journal.
    /// </summary>
    public long SnapshotPatienceUs { get; init; } = 60_000_000;

    /// <summary>
    /// Pause after a snapshot that was given up before the next one is opened; a full disk does not empty sooner. If lack of space was not the cause, the pause
    /// doubles each time up to <see cref="SnapshotRetryMaxUs"/>, because a large shard that fails again and again costs network and disk.
    /// </summary>
    public long SnapshotRetryUs { get; init; } = 5_000_000;

    /// <summary>The longest such pause: some minutes, enough for an operator to free space.</summary>
    public long SnapshotRetryMaxUs { get; init; } = 300_000_000;

    /// <summary>
    /// A follower that has bytes outstanding and made no progress for this long is probed again, because frames were lost. Three heartbeats, longer than any
    /// ordinary sync.
    /// </summary>
    public long StallUs { get; init; } = 300_000;

    /// <summary>
    /// Committed and acknowledged etags are written to the control file at most this often when nothing else is written, and less often if a node has many
    /// shards. They only speed up recovery and reveal lost tails, so one small sync a second is enough.
    /// </summary>
    public long ControlIntervalUs { get; init; } = 1_000_000;

    /// <summary>When the coordinator does not answer, the request is repeated after this time.</summary>
    public long CoordinatorRetryUs { get; init; } = 200_000;

    /// <summary>Number of heartbeat rounds whose send time is remembered. An answer to an older round counts as contact only.</summary>
    public int RoundsKept { get; init; } = 256;

    /// <summary>
    /// Interval at which a leader compares its voters' digests, with ±25 % jitter. Reading a tree takes a fraction of a core and of a disk while it lasts, and
    /// trees differ only because of a bug or failing memory. 0: never.
    /// </summary>
    public long DigestIntervalUs { get; init; } = 3_600_000_000;

    /// <summary>A comparison is decided after this time with the digests that have arrived. A busy machine reads trees of 200 GB in it, at 10 MB/s.</summary>
    public long DigestTimeUs { get; init; } = 21_600_000_000;

    /// <summary>A voter that has not reported its digest is asked again after this time. That does not restart its computation.</summary>
    public long DigestRepeatUs { get; init; } = 3_000_000;

    /// <summary>
    /// How long a follower keeps a grant of this length. Neither clock's drift may end it before the lease ends by the leader's clock. In whole milliseconds,
    /// because the control file stores the longest one in that unit.
    /// </summary>
    public long LengthenedByDrift(long leaseUs) =>
        ((leaseUs + (2 * leaseUs * ClockDriftPermille / (1000 - ClockDriftPermille))) / 1_000 + 1) * 1_000;
}
