namespace KvCluster.Replication.Log;

/// <summary>
/// What the protocol reads of its replica's journal, between effects and on the same thread. Two implementations: over the replica's
/// store, and in tests over a list.
/// </summary>
internal interface IJournalView
{
    /// <summary>The newest record appended, durable or not. Before the first record: the default.</summary>
    JournalRecord Last { get; }

    /// <summary>The end of the longest prefix whose writes have all completed.</summary>
    JournalRecord Durable { get; }

    /// <summary>
    /// The record with exactly this etag. The record that precedes the oldest one kept (what a checkpoint or snapshot covers) is found
    /// too, and <see cref="Etag.None"/> is found in a journal that starts at the beginning.
    /// </summary>
    bool TryFind(Etag etag, out JournalRecord record);

    /// <summary>The greatest record whose etag is at most this one; false if the journal no longer reaches back that far.</summary>
    bool TryFindAtOrBefore(Etag etag, out JournalRecord record);

    /// <summary>Checks magic, length and checksum of a body received from a peer and reads its header. False: damaged, use nothing of it.</summary>
    bool TryVerify(ReadOnlySpan<byte> body, out JournalRecord record);
}
