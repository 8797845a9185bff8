using Google.Protobuf;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Reads;
using KvCluster.Node.Shards.Snapshots;
using KvCluster.Replication;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Transactions;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// Performs the effects of the protocol's core with the replica's store, the peers and the coordinator. It decides nothing and keeps nothing: who leads and
/// what the shard's record says is asked of the core. Called on the shard's writer executor, one effect at a time and in order. An exception means that the
/// replica cannot continue.
/// </summary>
/// <param name="context">What the replica depends on.</param>
/// <param name="core">The protocol.</param>
/// <param name="journal">Provides the current store.</param>
/// <param name="frames">Sends and appends bodies.</param>
/// <param name="snapshots">Snapshots sent and received.</param>
/// <param name="reads">Reads that wait for the core.</param>
/// <param name="orders">Callers that wait for the end of what they ordered.</param>
/// <param name="published">What other threads see.</param>
/// <param name="decisions">The replica's log.</param>
/// <param name="mailbox">Takes events for a later turn.</param>
/// <param name="atOnce">Takes events to be stepped right after the running list of effects.</param>
/// <param name="quarantine">Ends this replica for good, asynchronously.</param>
internal sealed class EffectPerformer(
    ShardReplicaContext context,
    ReplicaCore core,
    ReplicaJournalView journal,
    JournalFrames frames,
    SnapshotTransfers snapshots,
    ReplicaReads reads,
    ReplicaOrders orders,
    PublishedState published,
    DecisionLog decisions,
    ReplicaMailbox mailbox,
    Queue<Event> atOnce,
    Quarantine quarantine)
{
    private ReplicaStore Store => journal.Store;

    private ShardId Shard => core.View.Record.ShardId;

    // One line per effect, in the terms of the contract, which is in the comments of Effect.
    public void Perform(Effect effect)
    {
        switch (effect)
        {
            case Effect.Send send: context.Peers.Send(send.Node, send.Frame); break;
            case Effect.SendBodies send: frames.Send(send); break;
            case Effect.WriteControl write: Store.Log.WriteControl((ControlState)write.Control); break;
            case Effect.AppendBodies append: frames.Append(append); break;
            case Effect.Truncate truncate: Store.Committed.Truncate(truncate.LastKept.Etag); break;
            case Effect.Commit commit: Commit(commit.Committed); break;
            case Effect.ReadRecord read: ReadRecord(read.ReadId); break;
            case Effect.CompareAndSet set: CompareAndSet(set); break;
            case Effect.StartLeading start: StartLeading(start); break;
            case Effect.Serving serving: published.Serve(serving.On); break;
            case Effect.StopLeading: StopLeading(); break;
            case Effect.ReadsConfirmed confirmed: reads.Confirm(confirmed.ReadIdLast); break;
            case Effect.ReadsRefused refused: reads.Refuse(refused.ReadIdLast); break;
            case Effect.ReadIndexKnown known: reads.AnswerFollower(known.ReadIdLast, known.Committed); break;
            case Effect.ReadIndexRefused refused: reads.AnswerFollower(refused.ReadIdLast, committed: null); break;
            case Effect.LeaderKnown known: published.Lead(known.Epoch, known.Node); break;
            case Effect.RecordAdopted adopted: published.Adopt(adopted.Record); break;
            case Effect.OpenSnapshot open: OpenSnapshot(open.Replica); break;
            case Effect.SendSnapshotChunk send: SendSnapshotChunk(send); break;
            case Effect.CloseSnapshot close: snapshots.Close(close.Replica); break;
            case Effect.CheckPages: Store.Scrub.Hurry(); break;
            case Effect.StoreSnapshotChunk store: snapshots.Store(store.Chunk, Store.Directory); break;
            case Effect.VerifySnapshot verify: snapshots.Verify(verify.Covers, Store.Durable.Control); break;
            case Effect.DropSnapshot: snapshots.Drop(); break;
            case Effect.InstallSnapshot install: InstallSnapshot(install); break;
            case Effect.TakeDigest take: TakeDigest(take); break;
            case Effect.DropDigest: Store.Digests.Drop(); break;
            case Effect.OrderEnded ended: orders.End(ended.OrderId, new OrderResult(ended.Done, ended.Reason)); break;
            case Effect.Alarm alarm: decisions.Alarm(alarm.Text); break;
            case Effect.Log line: decisions.Log(line.Text); break;
            case Effect.Halt halt: throw new ReplicaHaltedException(halt.Reason);
            case Effect.Quarantine wrong: quarantine.Begin(wrong.Reason); break;
            default: throw new InvalidOperationException($"The effect {effect.GetType().Name} has no driver.");
        }
    }

    private void Commit(Etag committed)
    {
        if (core.Leads)
            context.Telemetry.Committed(committed);
        // The store is asked, and not the core: it leads until the last effect of an epoch was performed, when the core may have left that epoch already.
        if (Store.Writes.IsLeading)
            Store.Writes.Commit(committed);
        else
            Store.Follower.Commit(committed);
    }

    private void ReadRecord(long readId) =>
        context.Records.Read(Shard, read => mailbox.Add(new Event.ShardRecordRead(readId, read.Record, read.Revision)));

    private void CompareAndSet(Effect.CompareAndSet set) =>
        context.Records.CompareAndSet(
            Shard, set.Record, set.Revision, result => mailbox.Add(new Event.CompareAndSetDone(set.SetId, result.Outcome, result.Revision)));

    private void StartLeading(Effect.StartLeading start)
    {
        context.Metrics.Elected();
        Store.Writes.Lead(start.Epoch);
        var heard = new HeardTime(start.Heard.Microseconds, TimeSpan.FromMicroseconds(start.Heard.AgoUs));
        var opened = Store.Writes.AppendEpochOpen(context.Clock.GetUtcNow(), heard);
        // Without a record the store has stopped, for example because the tail cannot be applied or read. That is the cause; without this check the core would
        // report a broken invariant.
        if (opened.BodyBytes == 0)
            throw new StoreStoppedException(Store.Life.Failure);
        atOnce.Enqueue(new Event.RecordAppended(opened));
    }

    private void StopLeading()
    {
        context.Telemetry.Ended();
        Store.Writes.StopLeading();
    }

    private void OpenSnapshot(ReplicaId replica)
    {
        var source = Store.Checkpoints.OpenSource();
        context.Metrics.SnapshotSent();
        var covers = snapshots.Send(replica, source);
        mailbox.Add(new Event.SnapshotOpened(replica, covers, source.BytesTotal));
    }

    private void SendSnapshotChunk(Effect.SendSnapshotChunk send) =>
        snapshots.SendChunk(send.Frame, send.Bytes, frame => context.Peers.Send(send.Node, frame));

    private void TakeDigest(Effect.TakeDigest take) => Store.Digests.Take(take.Etag, digest =>
    {
        if (digest is not null)
            context.Metrics.DigestTaken();
        mailbox.Add(new Event.DigestTaken(take.TakeId, digest is null ? ByteString.Empty : UnsafeByteOperations.UnsafeWrap(digest)));
    });

    private void InstallSnapshot(Effect.InstallSnapshot install) => snapshots.Install((ControlState)install.Control, () =>
    {
        context.Metrics.SnapshotReceived();
        mailbox.Add(new Event.SnapshotInstalled(install.Covers));
    });
}
