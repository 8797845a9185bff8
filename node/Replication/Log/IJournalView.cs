using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;

namespace KvCluster.Replication.Log;

/// <summary>
/// The protocol's read access to its replica's journal, between effects and on the same thread. Implemented over the replica's store, and in tests over a list.
/// </summary>
internal interface IJournalView
{
    /// <summary>The newest record appended, durable or not; the default before the first record.</summary>
    RecordRef Last { get; }

    /// <summary>The last record of the longest prefix whose writes have all completed.</summary>
    RecordRef Durable { get; }

    /// <summary>
    /// When <see cref="Durable"/> became that by a write, in microseconds of the boot clock. Later than the present if the journal does not tell.
    /// </summary>
    long DurableAtUs => long.MaxValue;

    /// <summary>The shard time, in microseconds, that a record would have now. Only while this replica leads and its first record is appended.</summary>
    long ShardTimeUs { get; }

    /// <summary>
    /// Finds the record with exactly this etag. The record before the oldest one kept (the one that a checkpoint or snapshot covers) is found
    /// too, and so is <see cref="Etag.None"/> in a journal that starts at the beginning.
    /// </summary>
    bool TryFind(Etag etag, out RecordRef record);

    /// <summary>Finds the greatest record whose etag is at most this one. False if the journal no longer reaches back that far.</summary>
    bool TryFindAtOrBefore(Etag etag, out RecordRef record);

    /// <summary>
    /// Checks magic, length and checksum of a body received from a peer and reads its header. False if it is damaged; nothing of it may then be used.
    /// </summary>
    bool TryVerify(ByteString body, [NotNullWhen(true)] out IVerifiedBody? verified);
}
