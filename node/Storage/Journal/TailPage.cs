using KvCluster.Storage.DataFile;

namespace KvCluster.Storage.Journal;

/// <summary>What came of a read of <see cref="CommittedTail"/>.</summary>
internal enum TailState
{
    /// <summary>The bodies follow the position, perhaps none.</summary>
    Read,

    /// <summary>The journal begins after the position.</summary>
    Compacted,

    /// <summary>The position is after everything that is committed here, as far as this replica knows.</summary>
    Ahead,

    /// <summary>No committed record has the position, although the journal reaches back so far: it is of another history of the shard.</summary>
    Foreign,

    /// <summary>The store has ended. Another one may have replaced it.</summary>
    Stopped,
}

/// <summary>Some committed records of a store that follow each other. Immutable; any thread.</summary>
/// <param name="State">Whether there are any.</param>
/// <param name="Until">The last record of the page; without bodies the position that it was read after.</param>
/// <param name="Oldest">The oldest position from which the journal can be read.</param>
/// <param name="Committed">The last record that was committed and applied here when the page was read.</param>
/// <param name="Bodies">The bodies in order. They stay valid and unchanged.</param>
/// <param name="Snapshot">
/// The state that has exactly the records up to <paramref name="Until"/>, for the reader to dispose of. Null if it was not asked for, or not all committed
/// records are in the page.
/// </param>
internal sealed record TailPage(
    TailState State, Etag Until, Etag Oldest, Etag Committed, IReadOnlyList<ReadOnlyMemory<byte>> Bodies, ReadSnapshot? Snapshot = null);
