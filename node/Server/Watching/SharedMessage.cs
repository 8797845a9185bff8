using KvCluster.Wire;

namespace KvCluster.Node.Watching;

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
