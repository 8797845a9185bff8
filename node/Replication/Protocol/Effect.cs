using Google.Protobuf;
using Google.Protobuf.Collections;
using KvCluster.Replication.Log;
using KvCluster.V1;

namespace KvCluster.Replication.Protocol;

/// <summary>What a replica's driver must do, in the order given. The contract of each is told once, at the top of <see cref="ReplicaCore"/>.</summary>
internal abstract record Effect
{
    private Effect()
    {
    }

    /// <summary>Send a frame to a node; may be lost.</summary>
    internal sealed record Send(uint Node, Frame Frame) : Effect;

    /// <summary>
    /// Fill <c>append.bodies</c> (or <c>tail.bodies</c>) of <paramref name="Frame"/> with the bodies that follow <paramref name="After"/>, at
    /// most <paramref name="BytesMax"/> but at least one, and send it. Nothing follows: for an append send nothing; a tail goes out as
    /// it is. For an append, then step <see cref="Event.BodiesSent"/>.
    /// </summary>
    internal sealed record SendBodies(uint Node, Frame Frame, LogPosition After, int BytesMax) : Effect;

    /// <summary>Write the control file; <see cref="Event.ControlWritten"/> follows when it is synced. At most one is under way.</summary>
    internal sealed record WriteControl(HardState Control) : Effect;

    /// <summary>Append these bodies, verified and chained onto the last record, as prepared records; <see cref="Event.Durable"/> follows.</summary>
    internal sealed record AppendBodies(RepeatedField<ByteString> Bodies, int First) : Effect;

    /// <summary>Cut the journal behind <paramref name="LastKept"/>; <see cref="Event.CutDone"/> follows.</summary>
    internal sealed record Cut(LogPosition LastKept) : Effect;

    /// <summary>Everything up to here is committed: following, apply and publish it; leading, publish it and answer its callers.</summary>
    internal sealed record Commit(Etag Committed) : Effect;

    /// <summary>Read the shard's record afresh; <see cref="Event.ShardRecordRead"/> follows with the same id, also on failure.</summary>
    internal sealed record ReadRecord(long ReadId) : Effect;

    /// <summary>One attempt to put the record if its mod revision is still this; <see cref="Event.CompareAndSetDone"/> follows with the same id.</summary>
    internal sealed record CompareAndSet(long SetId, ShardRecord Record, long Revision) : Effect;

    /// <summary>Lead the epoch: evaluate on top of the whole tail, append the epoch-open record, and step <see cref="Event.RecordAppended"/> with it.</summary>
    internal sealed record StartLeading(ulong Epoch) : Effect;

    /// <summary>Stop leading: drop what is not committed from the tree, answer its callers with an unknown outcome.</summary>
    internal sealed record StopLeading(string Reason) : Effect;

    /// <summary>True: the epoch-open record is committed, take writes and reads. False always comes before <see cref="StopLeading"/>.</summary>
    internal sealed record Serving(bool On) : Effect;

    /// <summary>Leadership was confirmed after these reads arrived: answer all of this id and below from the published state.</summary>
    internal sealed record ReadsConfirmed(long ReadIdLast) : Effect;

    /// <summary>Not the leader any more: answer all reads of this id and below with "not leader".</summary>
    internal sealed record ReadsRefused(long ReadIdLast) : Effect;

    /// <summary>Follower reads of this id and below may be answered from any state that has applied <paramref name="Committed"/>.</summary>
    internal sealed record ReadIndexKnown(long ReadIdLast, Etag Committed) : Effect;

    /// <summary>No leader could be asked, or it answered not: refuse follower reads of this id and below.</summary>
    internal sealed record ReadIndexRefused(long ReadIdLast) : Effect;

    /// <summary>The leader known to this replica changed (0: none known).</summary>
    internal sealed record LeaderKnown(ulong Epoch, ulong Replica, uint Node) : Effect;

    /// <summary>The shard's record as this replica knows it from here on; it never goes back. Not to be changed.</summary>
    internal sealed record RecordAdopted(ShardRecord Record, long Revision) : Effect;

    /// <summary>
    /// Pin the newest checkpoint for a follower; <see cref="Event.SnapshotOpened"/> follows, and <see cref="Event.SnapshotLost"/> if the pin is taken back.
    /// </summary>
    internal sealed record OpenSnapshot(ulong Replica) : Effect;

    /// <summary>
    /// Fill <c>snapshot_chunk.data</c> with <paramref name="Bytes"/> bytes at its offset of the pinned checkpoint, and send it, soon. A page that is not what was
    /// written is damage of this replica, which fails.
    /// </summary>
    internal sealed record SendSnapshotChunk(uint Node, Frame Frame, int Bytes) : Effect;

    /// <summary>The follower is served or gone: unpin.</summary>
    internal sealed record CloseSnapshot(ulong Replica) : Effect;

    /// <summary>
    /// Store a chunk beside the live state; an offset of 0 starts over. <see cref="Event.SnapshotStored"/> follows, or
    /// <see cref="Event.SnapshotFailed"/>, after which nothing of it is kept.
    /// </summary>
    internal sealed record StoreSnapshotChunk(SnapshotChunk Chunk) : Effect;

    /// <summary>
    /// All is stored: verify and sync it beside the live state, which goes on. <see cref="Event.SnapshotVerified"/> follows from time to time and at the end,
    /// or <see cref="Event.SnapshotFailed"/>.
    /// </summary>
    internal sealed record VerifySnapshot(LogPosition Covers) : Effect;

    /// <summary>Remove what is stored of a snapshot, if anything is. Nothing follows.</summary>
    internal sealed record DropSnapshot : Effect
    {
        public static readonly DropSnapshot Instance = new();
    }

    /// <summary>A follower found what this replica sent it damaged: read all pages of the own trees soon. Nothing follows; damage fails the replica.</summary>
    internal sealed record CheckPages : Effect
    {
        public static readonly CheckPages Instance = new();
    }

    /// <summary>Switch in the verified snapshot, with this control file; <see cref="Event.SnapshotInstalled"/> follows.</summary>
    internal sealed record InstallSnapshot(LogPosition Covers, HardState Control) : Effect;

    /// <summary>
    /// Pin the published state, which is that of <paramref name="Etag"/>, and compute its digest in the background; <see cref="Event.DigestTaken"/>
    /// follows with the same id. One that is under way is given up without an answer.
    /// </summary>
    internal sealed record TakeDigest(long TakeId, Etag Etag) : Effect;

    /// <summary>Nobody wants the digest any more: unpin. Nothing follows.</summary>
    internal sealed record DropDigest : Effect
    {
        public static readonly DropDigest Instance = new();
    }

    /// <summary>The leadership was handed over, or the replicas changed, or not, and why.</summary>
    internal sealed record OrderEnded(long OrderId, bool Done, string Reason) : Effect;

    /// <summary>Something an operator must hear of; the replica goes on as far as it safely can.</summary>
    internal sealed record Alarm(string Text) : Effect;

    /// <summary>This replica stops for good: a broken invariant. Nothing is done after it.</summary>
    internal sealed record Halt(string Reason) : Effect;

    /// <summary>This replica stops for good: its tree is not the one of its peers. It is to be rebuilt from them under a new id. Nothing is done after it.</summary>
    internal sealed record Quarantine(string Reason) : Effect;

    /// <summary>One line a decision.</summary>
    internal sealed record Log(string Text) : Effect;
}
