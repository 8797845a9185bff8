using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;

namespace KvCluster.Replication.Protocol;

/// <summary>What happens to a replica. Each event is passed to <see cref="ReplicaCore.Step"/> with the time at which it is handled.</summary>
internal abstract record Event
{
    private Event()
    {
    }

    /// <summary><see cref="ReplicaCore.NextTickUs"/> is reached. Earlier and later calls do no harm.</summary>
    internal sealed record Tick : Event
    {
        public static readonly Tick Instance = new();
    }

    /// <summary>A frame of this shard arrived. Its contents are not trusted: the core checks its sender and receiver.</summary>
    internal sealed record FrameReceived(Frame Frame) : Event;

    /// <summary><see cref="IJournalView.Durable"/> has risen.</summary>
    internal sealed record Durable : Event
    {
        public static readonly Durable Instance = new();
    }

    /// <summary>The control file is synced with this content.</summary>
    internal sealed record ControlWritten(HardState Control) : Event;

    /// <summary>An <see cref="Effect.Truncate"/> is done: the new segment's header is synced and <see cref="IJournalView.Last"/> is the record kept.</summary>
    internal sealed record Truncated : Event
    {
        public static readonly Truncated Instance = new();
    }

    /// <summary>The leader's own store appended a record: the epoch-open record right after <see cref="Effect.StartLeading"/>, batches later.</summary>
    internal sealed record RecordAppended(RecordRef Record) : Event;

    /// <summary>
    /// Answer to <see cref="Effect.SendBodies"/>: bodies up to and including <paramref name="Last"/> were sent. If that equals the effect's
    /// starting position, the journal no longer has the records that follow it.
    /// </summary>
    internal sealed record BodiesSent(ReplicaId Replica, ulong Epoch, LogPosition Last, long Bytes) : Event;

    /// <summary>
    /// The shard's record was read. <paramref name="ReadId"/> is that of the <see cref="Effect.ReadRecord"/> that this answers, or 0 from
    /// a watch. If <paramref name="Record"/> is null, the coordinator did not answer or has no record.
    /// </summary>
    internal sealed record ShardRecordRead(long ReadId, ShardRecord? Record, long Revision) : Event;

    /// <summary>Answer to <see cref="Effect.CompareAndSet"/>.</summary>
    internal sealed record CompareAndSetDone(long SetId, SetOutcome Outcome, long Revision) : Event;

    /// <summary>
    /// A read arrived that the lease does not cover, or that asks for a quorum. It is answered once, by
    /// <see cref="Effect.ReadsConfirmed"/> or <see cref="Effect.ReadsRefused"/> with this id or a higher one. Ids increase with every call.
    /// </summary>
    internal sealed record ReadArrived(long ReadId) : Event;

    /// <summary>
    /// An operator, or the node, wants <paramref name="Replica"/> to lead (0: the most advanced voter). Answered by one
    /// <see cref="Effect.OrderEnded"/> with the same id.
    /// </summary>
    internal sealed record TransferAsked(long OrderId, ReplicaId Replica) : Event;

    /// <summary>The shard's replicas are to change. Answered by one <see cref="Effect.OrderEnded"/> with the same id.</summary>
    internal sealed record ReplicasAsked(long OrderId, ReplicaChange Change) : Event;

    /// <summary>
    /// A linearizable read arrived at a replica that does not lead. Answered once, by <see cref="Effect.ReadIndexKnown"/> or
    /// <see cref="Effect.ReadIndexRefused"/> with this id or a higher one. Ids increase with every call, separately from those of <see cref="ReadArrived"/>.
    /// </summary>
    internal sealed record FollowerReadArrived(long ReadId) : Event;

    /// <summary>
    /// The driver has judged its journal's disk to be slow or full, or no longer. While impaired, a leader transfers to a voter that is not, and any
    /// other replica campaigns later than unimpaired ones would.
    /// </summary>
    internal sealed record DiskHealth(bool Impaired) : Event;

    /// <summary>
    /// Nothing arrives from another node any more, or the stream from it ended. A leader there is no longer given the longer time of a quiescent one.
    /// </summary>
    internal sealed record NodeSilent(NodeId Node) : Event;

    /// <summary>Answer to <see cref="Effect.TakeDigest"/>, some time later: the digest of the trees. Empty if the driver gave up.</summary>
    internal sealed record DigestTaken(long TakeId, ByteString Digest) : Event;

    /// <summary>
    /// Somebody needs to know now whether the voters' trees are equal. A leader compares them as soon as it may, and not more often than it repeats a
    /// comparison without a result; any other replica does nothing.
    /// </summary>
    internal sealed record DigestsWanted : Event
    {
        public static readonly DigestsWanted Instance = new();
    }

    /// <summary>Answer to <see cref="Effect.OpenSnapshot"/>: the checkpoint is pinned.</summary>
    internal sealed record SnapshotOpened(ReplicaId Replica, LogPosition Covers, long BytesTotal) : Event;

    /// <summary>A pin was revoked because it held too much or the disk is full. Nothing more of the checkpoint can be sent.</summary>
    internal sealed record SnapshotLost(ReplicaId Replica, LogPosition Covers, string Reason) : Event;

    /// <summary>Answer to <see cref="Effect.StoreSnapshotChunk"/>: stored from the start to here, without a gap.</summary>
    internal sealed record SnapshotStored(LogPosition Covers, long BytesStored) : Event;

    /// <summary>
    /// Answer to <see cref="Effect.VerifySnapshot"/>: the number of bytes verified. If <paramref name="IsWhole"/>, all are verified and synced.
    /// </summary>
    internal sealed record SnapshotVerified(LogPosition Covers, long BytesVerified, bool IsWhole) : Event;

    /// <summary>The snapshot could not be stored or verified. Nothing of it is kept.</summary>
    internal sealed record SnapshotFailed(LogPosition Covers, SnapshotFault Fault, string Reason) : Event;

    /// <summary>Answer to <see cref="Effect.InstallSnapshot"/>: switched in and durable; the journal's last record is the covered one.</summary>
    internal sealed record SnapshotInstalled(LogPosition Covers) : Event;
}
