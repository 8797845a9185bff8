using Google.Protobuf;
using KvCluster.Node.Coordination;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.V1;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards;

/// <summary>
/// Performs the effects of the protocol's core with the replica's store, the peers and the coordinator. Called on the shard's writer
/// executor, one effect at a time and in order. Volatile fields are read by other threads. An exception means that the replica
/// cannot continue.
/// </summary>
/// <param name="context">What the replica depends on.</param>
/// <param name="journal">The core's view of the store, which also holds the store in use.</param>
/// <param name="reads">Reads that wait for a heartbeat round while this replica leads.</param>
/// <param name="followerReads">Reads that wait for the leader's answer while this replica follows.</param>
/// <param name="later">Queues an event for a later turn. Any thread.</param>
/// <param name="atOnce">Queues an event to be stepped right after the running list of effects.</param>
/// <param name="quarantine">Ends this replica for good, asynchronously.</param>
/// <param name="snapshots">Snapshots sent and received.</param>
internal sealed class EffectPerformer(
    ShardReplicaContext context,
    ReplicaJournalView journal,
    WaitingReads reads,
    WaitingReads followerReads,
    Action<Event> later,
    Action<Event> atOnce,
    Action<string> quarantine,
    SnapshotTransfers snapshots)
{
    private readonly List<ReadOnlyMemory<byte>> _bodies = [];
    private readonly Dictionary<long, TaskCompletionSource<OrderResult>> _orders = [];
    private volatile bool _serving;
    private volatile ShardRoute _route = new();
    private ShardRecord _record = new();
    private string _logged = "";

    /// <summary>Whether this replica leads and takes writes. Any thread.</summary>
    public bool Serving => _serving;

    /// <summary>The newest route known. Any thread.</summary>
    public ShardRoute Route => _route;

    /// <summary>Whether this replica leads an epoch, serving or not yet.</summary>
    public bool Leading { get; private set; }

    /// <summary>Number of control states passed to the store and not synced yet.</summary>
    public int ControlWritesUnderWay { get; private set; }

    /// <summary>The last log lines. Any thread.</summary>
    public RecentDecisions Decisions { get; } = new();

    /// <summary>The shard's record as this replica knows it. Not modified afterwards.</summary>
    public ShardRecord Record => _record;

    /// <summary>The record's mod revision.</summary>
    public long RecordRevision { get; private set; }

    private ReplicaStore Store => journal.Store;

    /// <summary>The node of a replica; 0 if the record does not name it.</summary>
    public uint NodeOf(ulong replica)
    {
        foreach (var named in _record.Replicas)
        {
            if (named.Replica == replica)
                return named.Node;
        }
        return 0;
    }

    /// <summary>Registers a caller that waits for the end of a transfer or of a change of replicas that is about to be ordered.</summary>
    public void AwaitOrder(long orderId, TaskCompletionSource<OrderResult> ended) => _orders.Add(orderId, ended);

    /// <summary>Adopts the record that the core has adopted, for the shard's range and replicas.</summary>
    public void Remember(ShardRecord record, long revision)
    {
        _record = record;
        RecordRevision = revision;
        var known = _route;
        var keepsLeader = known.Epoch >= record.Epoch && known.Leader != 0;
        PublishRoute(keepsLeader ? known.Epoch : record.Epoch, keepsLeader ? known.Leader : 0);
    }

    // One line per effect, in the terms of the contract, which is in the comments of Effect.
    public void Perform(Effect effect)
    {
        switch (effect)
        {
            case Effect.Send send: context.Peers.Send(send.Node, send.Frame); break;
            case Effect.SendBodies send: SendBodies(send); break;
            case Effect.WriteControl write: WriteControl(write.Control); break;
            case Effect.AppendBodies append: AppendBodies(append); break;
            case Effect.Cut cut: Store.Cut(cut.LastKept.Etag.Value); break;
            case Effect.Commit commit: Commit(commit.Committed.Value); break;
            case Effect.ReadRecord read: ReadRecord(read.ReadId); break;
            case Effect.CompareAndSet set: CompareAndSet(set); break;
            case Effect.StartLeading start: StartLeading(start.Epoch); break;
            case Effect.Serving serving: _serving = serving.On; break;
            case Effect.StopLeading: StopLeading(); break;
            case Effect.ReadsConfirmed confirmed: ConfirmReads(confirmed.ReadIdLast); break;
            case Effect.ReadsRefused refused: reads.AnswerUpTo(refused.ReadIdLast, etag: null); break;
            case Effect.ReadIndexKnown known: followerReads.AnswerUpTo(known.ReadIdLast, known.Committed.Value); break;
            case Effect.ReadIndexRefused refused: followerReads.AnswerUpTo(refused.ReadIdLast, etag: null); break;
            case Effect.LeaderKnown known: PublishRoute(known.Epoch, known.Node); break;
            case Effect.RecordAdopted adopted: Remember(adopted.Record, adopted.Revision); break;
            case Effect.OpenSnapshot open: OpenSnapshot(open.Replica); break;
            case Effect.SendSnapshotChunk send: SendSnapshotChunk(send); break;
            case Effect.CloseSnapshot close: snapshots.Close(close.Replica); break;
            case Effect.CheckPages: Store.CheckPages(); break;
            case Effect.StoreSnapshotChunk store: snapshots.Store(store.Chunk, Store.Directory); break;
            case Effect.VerifySnapshot verify: snapshots.Verify(verify.Covers, Store.Control); break;
            case Effect.DropSnapshot: snapshots.Drop(); break;
            case Effect.InstallSnapshot install: InstallSnapshot(install); break;
            case Effect.TakeDigest take: TakeDigest(take); break;
            case Effect.DropDigest: Store.DropDigest(); break;
            case Effect.OrderEnded ended: EndOrder(ended); break;
            case Effect.Alarm alarm: Alarm(alarm.Text); break;
            case Effect.Log line: Log(line.Text); break;
            case Effect.Halt halt: throw new ReplicaHaltedException(halt.Reason);
            case Effect.Quarantine wrong: quarantine(wrong.Reason); break;
            default: throw new InvalidOperationException($"The effect {effect.GetType().Name} has no driver.");
        }
    }

    /// <summary>Takes no more writes, unpins the checkpoints being sent, and answers waiting callers.</summary>
    public void End()
    {
        _serving = false;
        snapshots.CloseAll();
        reads.RefuseAll();
        followerReads.RefuseAll();
        foreach (var ended in _orders.Values)
            ended.TrySetResult(new OrderResult(false, "the replica stopped; the change in progress may still have been made"));
        _orders.Clear();
        if (Leading)
            StopLeading();
    }

    /// <summary>The store has synced the control file.</summary>
    public void ControlWritten(ControlState state)
    {
        ControlWritesUnderWay--;
        later(new Event.ControlWritten(state.ToRecord()));
    }

    private void Commit(UInt128 committed)
    {
        if (Leading)
            context.Telemetry.Committed(committed);
        Store.Commit(committed);
    }

    /// <summary>Keeps a line for later queries.</summary>
    public void Keep(string text, bool alarm) =>
        context.Metrics.Activity.Decided(_record.Shard, Decisions.Add(context.Clock.GetUtcNow(), text, alarm));

    private void Log(string text)
    {
        // A replica that nobody answers starts and abandons campaigns several times a second.
        if (text == _logged)
            return;
        _logged = text;
        Keep(text, alarm: false);
        ShardLog.Decision(context.Log, _record.Shard, text);
    }

    private void Alarm(string text)
    {
        Keep(text, alarm: true);
        ShardLog.Alarm(context.Log, _record.Shard, text);
        context.Metrics.Alarmed();
    }

    private void WriteControl(HardState control)
    {
        ControlWritesUnderWay++;
        Store.WriteControl(Store.Control.With(control));
    }

    private void SendBodies(Effect.SendBodies send)
    {
        _bodies.Clear();
        Store.ReadBodies(send.After.Etag.Value, send.BytesMax, _bodies);
        var append = send.Frame.Append;
        var target = append is null ? send.Frame.Tail.Bodies : append.Bodies;
        var bytes = 0L;
        foreach (var body in _bodies)
        {
            // The store never changes or reuses a body's memory, so the frame may point at it.
            target.Add(UnsafeByteOperations.UnsafeWrap(body));
            bytes += body.Length;
        }
        var last = LastSent(send.After);
        if (append is not null)
            context.Telemetry.Sending(append, send.Node, send.After.Etag.Value, last.Etag.Value);
        if (append is null || _bodies.Count > 0)
            context.Peers.Send(send.Node, send.Frame);
        if (append is not null)
            atOnce(new Event.BodiesSent(send.Frame.Receiver, send.Frame.Epoch, last, bytes));
    }

    private LogPosition LastSent(LogPosition after)
    {
        if (_bodies.Count == 0)
            return after;
        if (!RecordBody.TryReadHeader(_bodies[^1].Span, out var last))
            throw new CorruptStoreException("The journal returned a body without a header.");
        return new LogPosition(Etag.FromValue(last.Etag), last.Checksum);
    }

    private void AppendBodies(Effect.AppendBodies append)
    {
        for (var index = append.First; index < append.Bodies.Count; index++)
        {
            // A store that has stopped takes nothing either. Its own first failure is then the cause.
            if (!Store.Append(append.Bodies[index].Span, out _))
                throw Store.Failure ?? new ReplicaHaltedException($"A body from the leader does not chain onto the journal's last record {Etag.FromValue(Store.Last.Etag)}.");
        }
    }

    private void ReadRecord(long readId) =>
        context.Coordination.Read(_record.Shard, read => later(new Event.ShardRecordRead(readId, read.Record, read.Revision)));

    private void CompareAndSet(Effect.CompareAndSet set) =>
        context.Coordination.CompareAndSet(
            _record.Shard, set.Record, set.Revision, result => later(new Event.CompareAndSetDone(set.SetId, OutcomeOf(result), result.Revision)));

    private static SetOutcome OutcomeOf(CompareAndSetResult result) => result.Outcome switch
    {
        CompareAndSetOutcome.Won => SetOutcome.Won,
        CompareAndSetOutcome.Lost => SetOutcome.Lost,
        _ => SetOutcome.Unknown,
    };

    private void StartLeading(ulong epoch)
    {
        Leading = true;
        context.Metrics.Elected();
        Store.Lead(epoch);
        var opened = Store.AppendEpochOpen(context.Clock.GetUtcNow());
        // Without a record the store has stopped, for example because the tail cannot be applied or read. That is the cause; without this check the core would
        // report a broken invariant.
        if (opened.BodyBytes == 0)
            throw new StoreStoppedException(Store.Failure);
        atOnce(new Event.RecordAppended(ReplicaJournalView.ToJournalRecord(opened)));
    }

    private void StopLeading()
    {
        Leading = false;
        context.Telemetry.Ended();
        Store.StopLeading();
    }

    private void PublishRoute(ulong epoch, uint leaderNode)
    {
        var route = new ShardRoute
        {
            Shard = _record.Shard,
            Start = _record.Start,
            End = _record.End,
            Generation = _record.Generation,
            Epoch = epoch,
            Leader = leaderNode,
        };
        route.Nodes.AddRange(_record.Replicas.Where(replica => !replica.Learner).Select(replica => replica.Node));
        if (route.Equals(_route))
            return;
        _route = route;
        context.RouteChanged(route);
    }

    private void EndOrder(Effect.OrderEnded ended)
    {
        if (_orders.Remove(ended.OrderId, out var waiting))
            waiting.TrySetResult(new OrderResult(ended.Done, ended.Reason));
    }

    // Releases only the failed conditions that were held before the round was sent, because it confirms nothing for later ones. Refused ones need no release:
    // the replica stops leading, which answers them.
    private void ConfirmReads(long readIdLast) => Store.ReleaseReadAnswers(reads.AnswerUpTo(readIdLast, Store.Published));

    private void OpenSnapshot(ulong replica)
    {
        var source = Store.OpenSnapshotSource();
        context.Metrics.SnapshotSent();
        var covers = snapshots.Send(replica, source);
        later(new Event.SnapshotOpened(replica, covers, source.BytesTotal));
    }

    private void SendSnapshotChunk(Effect.SendSnapshotChunk send) =>
        snapshots.SendChunk(send.Frame, send.Bytes, frame => context.Peers.Send(send.Node, frame));

    private void TakeDigest(Effect.TakeDigest take) => Store.TakeDigest(take.Etag.Value, digest =>
    {
        if (digest is not null)
            context.Metrics.DigestTaken();
        later(new Event.DigestTaken(take.TakeId, digest is null ? ByteString.Empty : UnsafeByteOperations.UnsafeWrap(digest)));
    });

    private void InstallSnapshot(Effect.InstallSnapshot install) => snapshots.Install(Store.Control.With(install.Control), () =>
    {
        context.Metrics.SnapshotReceived();
        later(new Event.SnapshotInstalled(install.Covers));
    });
}
