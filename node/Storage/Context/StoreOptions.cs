using KvCluster.Storage.DataFile;

namespace KvCluster.Storage.Context;

/// <summary>The bounds of a shard's engine, each with its unit and the reason for its default.</summary>
internal sealed record StoreOptions
{
    /// <summary>Requests that may wait for the writer: a hundred times the callers that fill a batch.</summary>
    public int QueueCountMax { get; init; } = 16_384;

    /// <summary>Bytes that may wait for the writer: four of the largest transactions.</summary>
    public long QueueBytesMax { get; init; } = 64 << 20;

    /// <summary>Payload bytes at which a batch is closed while the journal keeps up. A write of this size takes about as long as one sync.</summary>
    public int BatchBytes { get; init; } = 256 << 10;

    /// <summary>Payload bytes at which a batch is closed while an earlier one is still being written.</summary>
    public int BatchBytesUnderLoad { get; init; } = 1 << 20;

    /// <summary>
    /// Time after which a batch is closed, and after which a follower's step of applying ends. If pages have to be read from disk, a full batch would take
    /// seconds, in which the shards of this thread send no heartbeats or answers. A fifth of the heartbeat interval.
    /// </summary>
    public TimeSpan StepTimeMax { get; init; } = TimeSpan.FromMilliseconds(20);

    /// <summary>
    /// Pages that a step of the writer may read from the disk before it ends. A slow disk takes a tenth of a millisecond for each, so they take about as long
    /// as
    /// <see cref="StepTimeMax"/>. What one request or record needs beyond this is read before the step begins, beside the writer (<c>PathPrefetch</c>).
    /// </summary>
    public int StepReadsMax { get; init; } = 128;

    /// <summary>
    /// Leaves that one request may read to delete ranges and large sets: those on edges, those that were changed since the last checkpoint, and those with
    /// entries that refer to other pages. 8 MiB, some tens of thousands of small keys. Dropping such a leaf takes less than a microsecond if it is in memory,
    /// and some ten if it has to be read, so that a request takes about as long as a full batch, on each replica. What is left of a larger one is the next
    /// request's.
    /// </summary>
    public int RangeLeavesMax { get; init; } = 1_024;

    /// <summary>
    /// Leaves that one request may delete without reading them, which are the others. The branch that names them has to be read, and counts as 256 of them
    /// (<see cref="Trees.RangeAllowance"/>), so that these are some 60,000 leaves with four million small keys, and branches with long keys are at most 512. A
    /// request for 78,000 leaves took 11 ms beside much other work, so the writer is held up for about 10 ms. A stored result has room for 536 million keys.
    /// </summary>
    public int RangeLeavesUnreadMax { get; init; } = 128 << 10;

    /// <summary>Bytes of bodies kept in memory for followers and for applying.</summary>
    public long RecentBodyBytesMax { get; init; } = 16 << 20;

    /// <summary>
    /// Bytes of a replica's records that may wait for its disk, while a majority without this replica has them or a leader sends more. Several of a leader's
    /// windows.
    /// </summary>
    public long WaitingBodyBytesMax { get; init; } = 64 << 20;

    /// <summary>Size in bytes of the segment for which a disk has to have space, or else it is full. It is for deletes.</summary>
    public int SegmentBytesMin { get; init; } = 1 << 20;

    /// <summary>
    /// Size in bytes of the journal's first segment, after an open and after a quiescent period; at most <see cref="SegmentBytesMin"/>. Small, because a node
    /// may have a thousand quiescent replicas.
    /// </summary>
    public int SegmentBytesFirst { get => Math.Min(field, SegmentBytesMin); init; } = 128 << 10;

    /// <summary>Segments double in size up to this, in bytes; after one that a shared journal wrote for the most part they are four times as long.</summary>
    public int SegmentBytesMax { get; init; } = 64 << 20;

    /// <summary>
    /// Whether the space of a new segment is written once, as zeros, before it is used. It costs each byte of the journal a second write until segments are
    /// recycled. It pays where a write into space that was never written takes longer; a node measures that (<c>DeviceProbe.MeasureWhatPays</c>).
    /// </summary>
    public bool FillSegments { get; init; } = true;

    /// <summary>
    /// Whether the stores of a node may have their records in a shared journal before they are synced in their own segments. Only where
    /// <c>FileFeatures.MixesWrites</c>: on a file system that copies on write, a sync may find no space for what was written into the page cache.
    /// </summary>
    public bool SharesJournal { get; init; }

    /// <summary>
    /// Whether a leader compresses records, where that saves a block of the journal. It costs the writer about a millisecond for 1 MiB, and pays where the disk
    /// takes much longer than that; a node measures it (<c>DeviceProbe.MeasureWhatPays</c>). Every replica reads both.
    /// </summary>
    public bool CompressRecords { get; init; }

    /// <summary>
    /// Writes of the journal that may be in flight. More of them serve many callers on a device that answers late, and make smaller groups of their writes on
    /// one that does not; a node measures it (<c>DeviceProbe.MeasureWhatPays</c>). Whoever makes the <see cref="StoreContext"/> gives it as many lanes.
    /// </summary>
    public int JournalWrites { get; init; } = 2;

    /// <summary>
    /// Journal bytes since the last checkpoint that start one. Over many keys each checkpoint writes most leaves, so the more the better. This bounds replay: a
    /// third more has been written when the checkpoint ends, so that a crash leaves up to 512 MiB, which take two seconds, or several on a machine that is busy
    /// with other work. A disk that is too slow to write the checkpoint meanwhile leaves more: writers are slowed only from three times these bytes on.
    /// </summary>
    public long CheckpointJournalBytes { get; init; } = 384 << 20;

    /// <summary>Bytes of changed pages that start a checkpoint, unless <see cref="MemoryAccount.ChangedPagesPlenty"/> allows more.</summary>
    public long CheckpointScratchBytes { get; init; } = 256 << 20;

    /// <summary>
    /// Bytes of runs, which are large values, that start a checkpoint if it would write little else, and few of those made since the last one are gone. A run
    /// that stays is written once however late that is, so waiting for more of them saves nothing: it only takes memory, and ends in a longer burst of writes
    /// beside the journal's.
    /// </summary>
    public long CheckpointRunBytes { get; init; } = 64 << 20;

    /// <summary>
    /// Write rate of a checkpoint while there is time, in bytes per second. A fraction of a disk's rate, so that journal writes are hardly affected.
    /// </summary>
    public long CheckpointBytesPerSecond { get; init; } = 64 << 20;

    /// <summary>Time since the last checkpoint after which the next commit starts one.</summary>
    public TimeSpan CheckpointInterval { get; init; } = TimeSpan.FromMinutes(5);

    /// <summary>Time without a record after which a checkpoint is written early, so that a restart has nothing to replay for a quiescent store.</summary>
    public TimeSpan CheckpointQuiescentTime { get; init; } = TimeSpan.FromSeconds(5);

    /// <summary>Journal bytes since the last checkpoint from which a quiescent store writes one. Replaying less takes some hundredths of a second.</summary>
    public long CheckpointQuiescentJournalBytes { get; init; } = 4 << 20;

    /// <summary>
    /// Bytes of changed pages from which a quiescent store writes a checkpoint, so that their memory is returned. As many bytes of journal cause one too.
    /// </summary>
    public long CheckpointQuiescentScratchBytes { get; init; } = 4 << 20;

    /// <summary>Pause between two passes of the scrub, and before the first. Short enough that damage to two replicas in between is unlikely.</summary>
    public TimeSpan ScrubInterval { get; init; } = TimeSpan.FromHours(6);

    /// <summary>Read rate of the scrub in bytes per second: 10 GB take about ten minutes, and the disk is hardly affected.</summary>
    public long ScrubBytesPerSecond { get; init; } = 16 << 20;

    /// <summary>Read rate of all background digests and scrubs of a node together, in bytes per second. The same as a checkpoint's write rate.</summary>
    public long DigestBytesPerSecond { get; init; } = 64 << 20;

    /// <summary>Bytes of covered journal kept for lagging followers. Followers further behind get a snapshot.</summary>
    public long RetainedJournalBytes { get; init; } = 256 << 20;

    /// <summary>
    /// Bytes of covered journal that are kept for watchers that are connected and behind, if <see cref="RetainedJournalBytes"/> is less. A watcher further
    /// behind is told that the journal is compacted. Some minutes of the writes of a busy shard.
    /// </summary>
    public long WatchedJournalBytes { get; init; } = 64 << 20;

    /// <summary>
    /// Bytes of disk space that must remain free after receiving a snapshot; without them it is not started. Enough for the first journal segments after
    /// it, and for those that other shards of the node start meanwhile.
    /// </summary>
    public long SnapshotRoomBytes { get; init; } = 8 << 20;

    /// <summary>
    /// Bytes of journal that a snapshot in progress may hold back, or the length of the snapshot if that is more. A follower slower than this could never
    /// catch up with the shard's writes this way.
    /// </summary>
    public long SnapshotPinnedBytesMax { get; init; } = 1 << 30;

    /// <summary>Bytes kept allocated and released when the disk is full, so that deletes and a checkpoint are still possible.</summary>
    public int ReserveBytes { get; init; } = 1 << 20;

    /// <summary>
    /// How long a slow reader may hold one snapshot: long enough for a scan of some gigabytes at the speed of a connection. What snapshots pin is also
    /// bounded by <see cref="PageStoreOptions.PinnedBytesMax"/>.
    /// </summary>
    public TimeSpan SnapshotAgeMax { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>The bounds of the data file.</summary>
    public PageStoreOptions Pages { get; init; } = new();

    /// <summary>
    /// Sessions with a lifetime: 100,000 of one owner, who may have half of them. More can be opened only when others have ended. A leader counts each down in
    /// about 200 bytes, and one without requests or keys takes about as many in the tree.
    /// </summary>
    public int SessionsWithLifetimeMax { get; init; } = 1 << 18;

    /// <summary>Sessions of clients without a lifetime. More can be opened only when others have ended. A session takes about 2 KiB, at most 110 KiB.</summary>
    public int SessionsMax { get; init; } = 4_096;

    /// <summary>Shard time after which an idle session ends: much longer than any client repeats a request.</summary>
    public TimeSpan SessionIdleMax { get; init; } = TimeSpan.FromHours(1);

    /// <summary>
    /// Shard time for which an idle session is kept even when there are too many, unless its owner has more than others: longer than most clients repeat a
    /// request.
    /// </summary>
    public TimeSpan SessionIdleMin { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>
    /// How much faster than real time the boot clock may run, in thousandths. What ends by time ends later by as much, so that nothing ends early. The crystal
    /// of a machine is right to a tenth of this, and the kernel turns a clock to follow others by at most half of it. Less than what leases are lengthened by,
    /// because a key that ends a little early is no wrong answer.
    /// </summary>
    public int ClockDriftPermille { get; init; } = 1;

    /// <summary>
    /// Whether the records of this replica, when it leads, have a shard time beside the wall time, and what is left of sessions' lifetimes. False as long as
    /// replicas that know neither may have to read them (format level 1).
    /// </summary>
    public bool HasShardTimes { get; init; } = true;

    /// <summary>Files of truncated tails that are kept for inspection. The oldest is deleted first.</summary>
    public int AsideFilesMax { get; init; } = 8;
}
