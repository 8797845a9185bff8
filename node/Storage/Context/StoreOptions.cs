using KvCluster.Storage.DataFile;

namespace KvCluster.Storage.Context;

/// <summary>The bounds of a shard's engine, each with its unit and the reason for its default.</summary>
internal sealed record StoreOptions
{
    /// <summary>Requests that may wait for the writer. A hundred times the callers that fill a batch.</summary>
    public int QueueCountMax { get; init; } = 16_384;

    /// <summary>Bytes that may wait for the writer: four of the largest transactions.</summary>
    public long QueueBytesMax { get; init; } = 64 << 20;

    /// <summary>A batch closes at this many payload bytes while the journal keeps up; a write of this size takes about one sync's time.</summary>
    public int BatchBytes { get; init; } = 256 << 10;

    /// <summary>A batch closes at this many payload bytes when an earlier one is still being written.</summary>
    public int BatchBytesUnderLoad { get; init; } = 1 << 20;

    /// <summary>
    /// A batch also closes after this time, and a follower's step of applying: where pages come from the disk, a full one would take seconds, in which the shards of
    /// the thread neither beat nor answer. A fifth of a heartbeat's interval.
    /// </summary>
    public TimeSpan StepTimeMax { get; init; } = TimeSpan.FromMilliseconds(20);

    /// <summary>Bytes of bodies kept in memory for followers and for applying.</summary>
    public long RecentBodyBytesMax { get; init; } = 16 << 20;

    /// <summary>Bytes of a replica's records that may wait for its disk, while a majority of others has them or a leader sends more; several of a leader's windows.</summary>
    public long WaitingBodyBytesMax { get; init; } = 64 << 20;

    /// <summary>The journal's first segment, in bytes: an idle shard stays small.</summary>
    public int SegmentBytesMin { get; init; } = 1 << 20;

    /// <summary>Segments double up to this size, in bytes.</summary>
    public int SegmentBytesMax { get; init; } = 64 << 20;

    /// <summary>
    /// Journal bytes since the last checkpoint that start one: bounds replay to about a second, or three while others load the machine. Writes all over a
    /// large tree reach the scratch memory long before.
    /// </summary>
    public long CheckpointJournalBytes { get; init; } = 128 << 20;

    /// <summary>Scratch memory that starts a checkpoint, in bytes.</summary>
    public long CheckpointScratchBytes { get; init; } = 256 << 20;

    /// <summary>A checkpoint's rate while there is time, in bytes a second: a fraction of a disk's, so that journal writes hardly notice.</summary>
    public long CheckpointBytesPerSecond { get; init; } = 64 << 20;

    /// <summary>Time since the last checkpoint after which the next commit starts one.</summary>
    public TimeSpan CheckpointInterval { get; init; } = TimeSpan.FromMinutes(5);

    /// <summary>Time without a record after which a checkpoint is written early: a restart has nothing to replay of a shard that rests.</summary>
    public TimeSpan CheckpointIdleTime { get; init; } = TimeSpan.FromSeconds(5);

    /// <summary>Journal bytes since the last checkpoint from which a resting shard writes one; less is replayed in some hundredths of a second.</summary>
    public long CheckpointIdleJournalBytes { get; init; } = 4 << 20;

    /// <summary>Rest between two passes of the scrub, and before the first: often enough that two replicas hardly go bad between.</summary>
    public TimeSpan ScrubInterval { get; init; } = TimeSpan.FromHours(6);

    /// <summary>The scrub's rate, in bytes a second: 10 GB take about ten minutes, and a disk hardly notices.</summary>
    public long ScrubBytesPerSecond { get; init; } = 16 << 20;

    /// <summary>What all digests of a node together read in the background, in bytes a second: as a checkpoint writes.</summary>
    public long DigestBytesPerSecond { get; init; } = 64 << 20;

    /// <summary>Covered journal kept for followers that lag, in bytes; beyond it they get a snapshot.</summary>
    public long RetainedJournalBytes { get; init; } = 256 << 20;

    /// <summary>
    /// Bytes of the disk that a received snapshot leaves free: without them it is not begun. Enough for the first journal segments behind it, and for those that
    /// other shards of the node begin meanwhile.
    /// </summary>
    public long SnapshotRoomBytes { get; init; } = 8 << 20;

    /// <summary>
    /// Journal that a snapshot under way may hold back, in bytes, or as much as the snapshot is long if that is more: a follower that is slower than the shard's
    /// writes by then would never catch up this way.
    /// </summary>
    public long SnapshotPinnedBytesMax { get; init; } = 1 << 30;

    /// <summary>Kept allocated, in bytes, and given up when the disk is full, so that deletes and a checkpoint go through.</summary>
    public int ReserveBytes { get; init; } = 1 << 20;

    /// <summary>
    /// How long somebody who reads slowly may hold one snapshot: long enough for a scan of some gigabytes that is read at a connection's speed. What snapshots pin has a bound besides,
    /// <see cref="PageStoreOptions.PinnedBytesMax"/>.
    /// </summary>
    public TimeSpan SnapshotAgeMax { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>The data file's bounds.</summary>
    public PageStoreOptions Pages { get; init; } = new();

    /// <summary>Sessions of clients; further ones are opened when others have ended. One costs about 2 KiB, at most 110 KiB.</summary>
    public int SessionsMax { get; init; } = 4_096;

    /// <summary>Shard time after which an idle session ends: much longer than any client repeats a request.</summary>
    public TimeSpan SessionIdleMax { get; init; } = TimeSpan.FromHours(1);

    /// <summary>Shard time for which a session stays even when there are too many, unless its owner has more than others: longer than most clients repeat a request.</summary>
    public TimeSpan SessionIdleMin { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>Files of cut tails that are kept for people to look at; the oldest goes first.</summary>
    public int AsideFilesMax { get; init; } = 8;
}
