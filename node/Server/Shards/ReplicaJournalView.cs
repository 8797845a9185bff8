using KvCluster.Replication.Log;
using KvCluster.Storage;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;

namespace KvCluster.Node.Shards;

/// <summary>
/// The protocol's view of the replica's store. Runs on the shard's writer executor. <see cref="Store"/> changes only when a
/// snapshot is switched in.
/// </summary>
internal sealed class ReplicaJournalView(ReplicaStore store) : IJournalView
{
    private volatile ReplicaStore _store = store;

    /// <summary>The store in use. Any thread reads it; the writer executor sets it.</summary>
    public ReplicaStore Store
    {
        get => _store;
        set => _store = value;
    }

    public JournalRecord Last => ToJournalRecord(Store.Last);

    public JournalRecord Durable => ToJournalRecord(Store.Durable);

    public static JournalRecord ToJournalRecord(in RecordRef record) =>
        new(Etag.FromValue(record.Etag), record.Checksum, Etag.FromValue(record.Previous), record.PreviousChecksum, record.BodyBytes);

    public bool TryFind(Etag etag, out JournalRecord record)
    {
        var found = Store.TryFind(etag.Value, out var stored);
        record = found ? ToJournalRecord(stored) : default;
        return found;
    }

    public bool TryFindAtOrBefore(Etag etag, out JournalRecord record)
    {
        var found = Store.TryFindAtOrBefore(etag.Value, out var stored);
        record = found ? ToJournalRecord(stored) : default;
        return found;
    }

    public bool TryVerify(ReadOnlySpan<byte> body, out JournalRecord record)
    {
        record = default;
        if (!RecordBody.Verify(body) || !RecordBody.TryReadHeader(body, out var header))
            return false;
        record = ToJournalRecord(header);
        return true;
    }
}
