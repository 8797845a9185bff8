using KvCluster.Storage.Journal;

namespace KvCluster.Node.Watching;

/// <summary>What the sender of a watcher's messages does next.</summary>
internal enum WatchStep
{
    /// <summary>Wait.</summary>
    Wait,

    /// <summary>Send the events, if there are any, with the position.</summary>
    Send,

    /// <summary>Read the journal with <see cref="WatchHub.CatchUp"/>.</summary>
    CatchUp,

    /// <summary>End the stream.</summary>
    Ended,
}

/// <summary>What came of reading the journal for a watcher.</summary>
/// <param name="State">Whether it has advanced, and if not, why.</param>
/// <param name="Oldest">The oldest position from which it could begin.</param>
/// <param name="Position">Its position with the events.</param>
/// <param name="Runs">The events.</param>
internal sealed record CaughtUp(TailState State, Etag Oldest, Etag Position, List<WatchRun> Runs);

/// <summary>What a watcher has sent of the entries that it begins with.</summary>
/// <param name="Keys">The keys.</param>
/// <param name="Through">The last one.</param>
/// <param name="Until">The state that the rest is read in. Changes of the keys sent are read up to here.</param>
internal readonly record struct SentBeginning(WatchedRange Keys, ReadOnlyMemory<byte> Through, Etag Until);
