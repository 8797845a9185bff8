using KvCluster.Storage;
using KvCluster.Storage.Journal;
using KvCluster.Wire;

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

/// <summary>What a message has. Messages with the same events are the same, whatever the ranges of their watchers. Compared by content; immutable.</summary>
/// <param name="runs">The events, of which it keeps nothing but their places in their records.</param>
/// <param name="position">The position with them.</param>
/// <param name="options">What is left out.</param>
/// <param name="isOfJournal">Whether the events were read from the journal, which does not tell what they replaced.</param>
internal sealed class WatchPart(IEnumerable<WatchRun> runs, Etag position, int options, bool isOfJournal) : IEquatable<WatchPart>
{
    private readonly (Etag Record, int First, int Count)[] _runs = [.. runs.Select(static run => (run.Batch.Etag, run.First, run.Count))];
    private readonly (Etag Position, int Options, bool IsOfJournal) _rest = (position, options, isOfJournal);

    public bool Equals(WatchPart? other) => other is not null && _rest == other._rest && _runs.AsSpan().SequenceEqual(other._runs);

    public override bool Equals(object? obj) => Equals(obj as WatchPart);

    public override int GetHashCode() => HashCode.Combine(_rest, _runs.Length, _runs.FirstOrDefault());
}

/// <summary>What was read of the journal, for all watchers that are behind at one position.</summary>
/// <param name="store">Whose journal.</param>
/// <param name="after">The position.</param>
/// <param name="page">What follows it.</param>
internal sealed class JournalPage(ReplicaStore store, Etag after, TailPage page)
{
    public ReplicaStore Store => store;

    public Etag After => after;

    public TailPage Page => page;

    /// <summary>The events of each record.</summary>
    public IReadOnlyList<WatchBatch> Batches { get; } = [.. page.Bodies.Select(WatchBatch.Decode)];
}

/// <summary>A message that several watchers send. Any thread.</summary>
internal sealed class SharedMessage
{
    private readonly Lock _lock = new();
    private MessageBytes? _message;
    private bool _isForgotten;

    /// <summary>The message, which is made by the first one that asks, while the others wait for it. Whoever gets it returns it.</summary>
    public MessageBytes Get(Func<MessageBytes> encode)
    {
        lock (_lock)
        {
            if (_isForgotten)
                return encode();
            return (_message ??= encode()).Share();
        }
    }

    /// <summary>It is not kept any longer. Those that have it go on.</summary>
    public void Forget()
    {
        lock (_lock)
        {
            _isForgotten = true;
            _message?.Return();
            _message = null;
        }
    }
}
