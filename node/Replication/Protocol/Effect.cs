using KvCluster.Internal.V1;
using KvCluster.Replication.Log;

namespace KvCluster.Replication.Protocol;

/// <summary>
/// What a replica's driver must do. The driver is the shard's replica in the node, or the simulator. This is the contract between it and the
/// <see cref="ReplicaCore"/>.
/// </summary>
/// <remarks>
/// <para>
/// One thread at a time. The driver calls <see cref="ReplicaCore.Step"/> with an <see cref="Event"/> and the boot clock in microseconds, which never goes back.
/// The driver executes the effects from first to last, and may then step the next event. It never steps while effects of the last step are left. "At once"
/// below means that the event is stepped after all effects of the running list, before any other event.
/// </para>
/// <para>
/// The driver steps <see cref="Event.Tick"/> first of all. After each step it arranges to step it again at <see cref="ReplicaCore.NextTickUs"/>, which may have
/// moved either way. It steps <see cref="Event.Durable"/> whenever that has risen, while leading too.
/// </para>
/// <para>
/// The lease may be read on any thread: a read takes its snapshot first and then asks whether the lease covers it. Writes of a serving leader need no lease.
/// Failed conditions do; if the lease does not cover one, the driver steps <see cref="Event.ReadArrived"/> and answers when that read is confirmed.
/// </para>
/// </remarks>
internal abstract record Effect
{
    private Effect()
    {
    }

    /// <summary>Pass a frame to the transport, to be sent to a node. Never waits; the frame may be lost.</summary>
    internal sealed record Send(NodeId Node, Frame Frame) : Effect;

    /// <summary>
    /// Fill <c>append.bodies</c> (or <c>tail.bodies</c>) of <paramref name="Frame"/> with the bodies that follow <paramref name="After"/> in the journal,
    /// durable or not, at most <paramref name="BytesMax"/> but at least one, and send it. If no body follows, an append is not sent and a tail is sent without
    /// bodies. After an append, sent or not, step <see cref="Event.BodiesSent"/> at once.
    /// </summary>
    internal sealed record SendBodies(NodeId Node, Frame Frame, LogPosition After, int BytesMax) : Effect;

    /// <summary>
    /// Write and sync the control file; <see cref="Event.ControlWritten"/> follows when it is synced. Other effects continue meanwhile. At most one write is in
    /// progress.
    /// </summary>
    internal sealed record WriteControl(HardState Control) : Effect;

    /// <summary>
    /// Append these bodies, verified and chained onto the last record, as prepared records, before anything else reads the journal; <see cref="Event.Durable"/>
    /// follows. A body that does not chain is a bug and fails the replica.
    /// </summary>
    internal sealed record AppendBodies(IReadOnlyList<IVerifiedBody> Bodies) : Effect;

    /// <summary>
    /// Truncate the journal after <paramref name="LastKept"/>, which is <see cref="IJournalView.Last"/> when this effect returns; <see cref="Event.Truncated"/>
    /// follows when the new header is synced.
    /// </summary>
    internal sealed record Truncate(LogPosition LastKept) : Effect;

    /// <summary>Everything up to here is committed. A follower applies and publishes it; a leader publishes it and answers its callers in etag order.</summary>
    internal sealed record Commit(Etag Committed) : Effect;

    /// <summary>
    /// Send a linearizable read of the shard's record now; <see cref="Event.ShardRecordRead"/> follows with the same id, also on failure.
    /// </summary>
    internal sealed record ReadRecord(long ReadId) : Effect;

    /// <summary>
    /// Make one attempt to put the record if its mod revision is still <paramref name="Revision"/>, and never repeat it by itself;
    /// <see cref="Event.CompareAndSetDone"/> follows with the same id.
    /// </summary>
    internal sealed record CompareAndSet(long SetId, ShardRecord Record, long Revision) : Effect;

    /// <summary>
    /// Lead the epoch: evaluate on top of the whole tail, append the epoch-open record with a shard time that continues from <paramref name="Heard"/>, and step
    /// <see cref="Event.RecordAppended"/> with it at once.
    /// </summary>
    internal sealed record StartLeading(ulong Epoch, HeardShardTime Heard) : Effect;

    /// <summary>
    /// Stop leading: drop what is not committed from the tree, and answer its callers with an unknown outcome. The tail becomes prepared records again.
    /// </summary>
    internal sealed record StopLeading(string Reason) : Effect;

    /// <summary>
    /// True: the epoch-open record is committed. Take reads, and drain the write queue from now on; after each batch step <see cref="Event.RecordAppended"/> at
    /// once. False: take no more writes. It always comes before <see cref="StopLeading"/>.
    /// </summary>
    internal sealed record Serving(bool On) : Effect;

    /// <summary>Leadership was confirmed after these reads arrived. Answer all reads of this id and below from a snapshot opened now.</summary>
    internal sealed record ReadsConfirmed(long ReadIdLast) : Effect;

    /// <summary>This replica is no longer the leader. Answer all reads of this id and below with "not leader".</summary>
    internal sealed record ReadsRefused(long ReadIdLast) : Effect;

    /// <summary>Follower reads of this id and below may be answered from any state that has applied <paramref name="Committed"/>.</summary>
    internal sealed record ReadIndexKnown(long ReadIdLast, Etag Committed) : Effect;

    /// <summary>No leader is known, or it did not answer. Refuse follower reads of this id and below.</summary>
    internal sealed record ReadIndexRefused(long ReadIdLast) : Effect;

    /// <summary>The leader known to this replica changed (0: none known). Publish the route.</summary>
    internal sealed record LeaderKnown(ulong Epoch, ReplicaId Replica, NodeId Node) : Effect;

    /// <summary>
    /// The shard's record that this replica goes by from now on, and that routes are published from. The core owns it. Generation, epoch and revision never
    /// decrease. The record must not be modified.
    /// </summary>
    internal sealed record RecordAdopted(ShardRecord Record, long Revision) : Effect;

    /// <summary>
    /// Pin the newest checkpoint and its log position for a follower; <see cref="Event.SnapshotOpened"/> follows, and <see cref="Event.SnapshotLost"/> if the
    /// pin is revoked.
    /// </summary>
    internal sealed record OpenSnapshot(ReplicaId Replica) : Effect;

    /// <summary>
    /// Fill <c>snapshot_chunk.data</c> with <paramref name="Bytes"/> bytes at its offset of the pinned checkpoint, and send it soon. A page that differs from
    /// what was written is damage to this replica, which fails.
    /// </summary>
    internal sealed record SendSnapshotChunk(NodeId Node, Frame Frame, int Bytes) : Effect;

    /// <summary>The follower has the snapshot or is gone. Unpin the checkpoint.</summary>
    internal sealed record CloseSnapshot(ReplicaId Replica) : Effect;

    /// <summary>
    /// Store a chunk beside the live state; an offset of 0 starts over. <see cref="Event.SnapshotStored"/> follows, or
    /// <see cref="Event.SnapshotFailed"/>, after which nothing of the snapshot is kept.
    /// </summary>
    internal sealed record StoreSnapshotChunk(SnapshotChunk Chunk) : Effect;

    /// <summary>
    /// All bytes are stored. Verify and sync them beside the live state, which stays in use. <see cref="Event.SnapshotVerified"/> follows from time to time and
    /// at the end, or <see cref="Event.SnapshotFailed"/>.
    /// </summary>
    internal sealed record VerifySnapshot(LogPosition Covers) : Effect;

    /// <summary>Remove what is stored of a snapshot, if anything is. No event follows.</summary>
    internal sealed record DropSnapshot : Effect
    {
        public static readonly DropSnapshot Instance = new();
    }

    /// <summary>
    /// A follower found the snapshot that this replica sent damaged. Read all pages of this replica's trees soon. No event follows; damage fails the
    /// replica.
    /// </summary>
    internal sealed record CheckPages : Effect
    {
        public static readonly CheckPages Instance = new();
    }

    /// <summary>Switch in the verified snapshot, with this control file; <see cref="Event.SnapshotInstalled"/> follows.</summary>
    internal sealed record InstallSnapshot(LogPosition Covers, HardState Control) : Effect;

    /// <summary>
    /// Pin the published state, which is that of <paramref name="Etag"/>, and compute its digest in the background; <see cref="Event.DigestTaken"/>
    /// follows with the same id. A digest in progress is abandoned without an event.
    /// </summary>
    internal sealed record TakeDigest(long TakeId, Etag Etag) : Effect;

    /// <summary>The digest is no longer needed. Unpin its state. No event follows.</summary>
    internal sealed record DropDigest : Effect
    {
        public static readonly DropDigest Instance = new();
    }

    /// <summary>A transfer or a change of replicas has ended. Tell whoever gave the order whether it was done, and why not.</summary>
    internal sealed record OrderEnded(long OrderId, bool Done, string Reason) : Effect;

    /// <summary>Something an operator must know. The replica continues as far as it safely can.</summary>
    internal sealed record Alarm(string Text) : Effect;

    /// <summary>
    /// This replica stops for good because of a broken invariant. Fail it and keep the reason. No effect follows, and nothing is stepped any more.
    /// </summary>
    internal sealed record Halt(string Reason) : Effect;

    /// <summary>
    /// This replica stops for good because its tree differs from its peers'. It is to be rebuilt from them under a new id. No effect follows, and nothing is
    /// stepped any more.
    /// </summary>
    internal sealed record Quarantine(string Reason) : Effect;

    /// <summary>A log line, one per decision.</summary>
    internal sealed record Log(string Text) : Effect;
}
