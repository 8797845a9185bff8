using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using KvCluster.Replication.Log;
using KvCluster.Storage;
using KvCluster.Storage.Journal;

namespace KvCluster.Node.Shards.Context;

/// <summary>
/// The protocol's view of the replica's store. Runs on the shard's writer executor. <see cref="Store"/> changes only when a
/// snapshot is switched in.
/// </summary>
/// <param name="store">The store in use at first.</param>
/// <param name="microsecondsOf">Converts a timestamp of the boot clock.</param>
internal sealed class ReplicaJournalView(ReplicaStore store, Func<long, long> microsecondsOf) : IJournalView
{
    private volatile ReplicaStore _store = store;

    /// <summary>The store in use. Any thread reads it; the writer executor sets it.</summary>
    public ReplicaStore Store
    {
        get => _store;
        set => _store = value;
    }

    public RecordRef Last => Store.Log.Last;

    public RecordRef Durable => Store.Durable.Last;

    public long DurableAtUs => microsecondsOf(Store.Durable.LastAt);

    public long ShardTimeUs => Store.Writes.ShardTime;

    public bool TryFind(Etag etag, out RecordRef record)
    {
        var isFound = Store.Reader.TryFind(etag, out var found);
        record = isFound ? found : default;
        return isFound;
    }

    public bool TryFindAtOrBefore(Etag etag, out RecordRef record)
    {
        var isFound = Store.Reader.TryFindAtOrBefore(etag, out var found);
        record = isFound ? found : default;
        return isFound;
    }

    public bool TryVerify(ByteString body, [NotNullWhen(true)] out IVerifiedBody? verified)
    {
        // The journal keeps the frame's bytes: a ByteString never changes, and each body of a frame has its own.
        verified = VerifiedBody.TryVerify(body.Memory, out var ofStore) ? new Received(ofStore) : null;
        return verified is not null;
    }

    /// <summary>A body from a peer as the store appends it.</summary>
    internal sealed class Received(VerifiedBody body) : IVerifiedBody
    {
        public VerifiedBody Body => body;

        public RecordRef Record => body.Record;
    }
}
