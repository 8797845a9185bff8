using Google.Protobuf;
using KvCluster.Node.Shards.Context;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// Moves record bodies between the journal and frames: out of a leader's, into a follower's. The bytes are the same on every disk and on the wire. Called on
/// the shard's writer executor.
/// </summary>
/// <param name="context">The peers and the telemetry.</param>
/// <param name="journal">Provides the current store.</param>
/// <param name="atOnce">Takes events to be stepped right after the running list of effects.</param>
internal sealed class JournalFrames(ShardReplicaContext context, ReplicaJournalView journal, Queue<Event> atOnce)
{
    // Filled and emptied within one effect.
    private readonly List<ReadOnlyMemory<byte>> _bodies = [];

    /// <summary>Performs <see cref="Effect.SendBodies"/>.</summary>
    public void Send(Effect.SendBodies send)
    {
        _bodies.Clear();
        journal.Store.Reader.ReadBodies(send.After.Etag, send.BytesMax, _bodies);
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
            context.Telemetry.Sending(append, send.Node, send.After.Etag, last.Etag);
        if (append is null || _bodies.Count > 0)
            context.Peers.Send(send.Node, send.Frame);
        if (append is not null)
            atOnce.Enqueue(new Event.BodiesSent(send.Frame.ReceiverId, send.Frame.Epoch, last, bytes));
    }

    /// <summary>Performs <see cref="Effect.AppendBodies"/>.</summary>
    public void Append(Effect.AppendBodies append)
    {
        var store = journal.Store;
        foreach (var body in append.Bodies)
        {
            // A store that has stopped takes nothing either. Its own first failure is then the cause.
            if (!store.Log.TryAppend(((ReplicaJournalView.Received)body).Body))
                throw store.Life.Failure
                    ?? new ReplicaHaltedException($"A body from the leader does not chain onto the journal's last record {store.Log.Last.Etag}.");
        }
    }

    private LogPosition LastSent(LogPosition after)
    {
        if (_bodies.Count == 0)
            return after;
        if (!RecordBody.TryReadHeader(_bodies[^1].Span, out var last))
            throw new CorruptStoreException("The journal returned a body without a header.");
        return new LogPosition(last.Etag, last.Checksum);
    }
}
