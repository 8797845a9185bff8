using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>A key range with its state, its sessions, and the changes that it keeps for watches. Used under the lock of the store.</summary>
/// <param name="id">Its number.</param>
/// <param name="start">Its first key; empty for the first shard.</param>
/// <param name="end">Its end, exclusive; empty for the last shard.</param>
/// <param name="changesKept">How many changes are kept.</param>
/// <param name="ownerOf">The number of the shard that owns a key.</param>
internal sealed class Shard(uint id, KvKey start, KvKey end, int changesKept, Func<KvKey, int> ownerOf)
{
    private readonly Dictionary<KvKey, Session> _sessions = [];

    // Also has expiries that keys do not have any more.
    private readonly PriorityQueue<KvKey, TimeSpan> _expiries = new();

    private readonly List<KeptChange> _changes = [];

    public uint Id => id;

    public KvKey Start => start;

    public KvKey End => end;

    public ShardState State { get; private set; } = new();

    /// <summary>The oldest position after which all changes are kept.</summary>
    public Etag Oldest { get; private set; }

    /// <summary>When something is to end next; null: nothing is. It may have been put off since.</summary>
    public TimeSpan? NextEnd
    {
        get
        {
            TimeSpan? next = _expiries.TryPeek(out _, out var first) ? first : null;
            foreach (var session in _sessions.Values)
                next = next < session.Deadline ? next : session.Deadline;
            return next;
        }
    }

    public bool Owns(KvKey key) => start.CompareTo(key) <= 0 && (end.IsEmpty || key.CompareTo(end) < 0);

    /// <summary>The refusal of a request that has a key of this shard and one of another shard.</summary>
    /// <param name="key">That of the other one.</param>
    public KvShardsDifferException DiffersFrom(KvKey key) => Refusals.ShardsDiffer(id, (uint)ownerOf(key));

    /// <summary>Whether it has keys of a range.</summary>
    public bool Meets(KeyBounds bounds) =>
        (bounds.Upper.IsEmpty || start.Span.SequenceCompareTo(bounds.Upper.Span) < 0) && (end.IsEmpty || bounds.Lower.Span.SequenceCompareTo(end.Span) < 0);

    /// <summary>Applies a request, all of it or nothing.</summary>
    /// <exception cref="KvException">It is refused.</exception>
    public Applied Apply(ShardRequest request, TimeSpan now, ulong lineage)
    {
        RequestChecks.Request(request, this);
        var failed = ConditionEvaluation.FindFailed(State, request);
        if (failed is { } condition && request.Otherwise is null)
            throw Refusals.ConditionFailed(condition, new ShardPosition(id, State.Etag));
        var transaction = Begin(now);
        List<OperationResult> results = [.. (failed is null ? request.Operations : request.Otherwise!).Select(transaction.Apply)];
        if (request.WithResults)
            CheckResults(request, results);
        Commit(transaction);
        return new Applied(PositionIn(lineage), failed, results, transaction.KeysDeleted, transaction.MembersChanged);
    }

    /// <summary>The newest change.</summary>
    public ShardPosition PositionIn(ulong lineage) => new(id, State.Etag) { Lineage = lineage };

    /// <summary>Opens a session.</summary>
    public Session Open(KvKey session, TimeSpan lifetime, TimeSpan now)
    {
        var transaction = Begin(now);
        var opened = new Session(session, transaction.Open(), lifetime, now);
        _sessions.Add(session, opened);
        Commit(transaction);
        return opened;
    }

    /// <summary>A session by its id; null if there is none, or not any more.</summary>
    public Session? FindSession(KvKey session) => _sessions.GetValueOrDefault(session);

    /// <summary>Ends a session, and returns how many keys it has owned.</summary>
    public ulong EndSession(Session session, TimeSpan now)
    {
        _sessions.Remove(session.Id);
        var transaction = Begin(now);
        transaction.End(session);
        Commit(transaction);
        return (ulong)transaction.KeysDeleted;
    }

    /// <summary>Ends the sessions and the keys whose time is over. Returns whether there were any.</summary>
    public bool EndDue(TimeSpan now)
    {
        var before = State;
        foreach (var session in _sessions.Values.Where(session => session.Deadline <= now).ToList())
            EndSession(session, now);
        var transaction = Begin(now);
        while (_expiries.TryPeek(out var key, out var at) && at <= now)
        {
            _expiries.Dequeue();
            if (transaction.State.Find(key) is { } found && found.Expiry == at)
                transaction.Expire(found);
        }
        Commit(transaction);
        return State.Etag != before.Etag;
    }

    /// <summary>The changes after a position, each with the events of one request.</summary>
    public IEnumerable<KeptChange> ChangesAfter(Etag position)
    {
        var first = _changes.Count;
        while (first > 0 && _changes[first - 1].Etag > position)
            first--;
        return _changes.Skip(first);
    }

    private ShardTransaction Begin(TimeSpan now) => new(State, now, FindSession);

    private void Commit(ShardTransaction transaction)
    {
        State = transaction.State;
        foreach (var (key, at) in transaction.Expiries)
            _expiries.Enqueue(key, at);
        if (transaction.Events.Count == 0)
            return;
        _changes.Add(new KeptChange(State.Etag, transaction.Events));
        if (_changes.Count <= changesKept)
            return;
        Oldest = _changes[0].Etag;
        _changes.RemoveAt(0);
    }

    // A request that changes something has an identity, with which its results are kept.
    private static void CheckResults(ShardRequest request, List<OperationResult> results)
    {
        var most = request.OnlyReads ? KvLimits.ResultsBytesMax : KvLimits.KeptResultsBytesMax;
        if (results.Sum(static result => result.Entries.Sum(static entry => (long)entry.Key.Length + entry.Value.Length)) > most)
            throw Refusals.ResultsTooLarge(most);
    }
}

/// <summary>The events of one change.</summary>
/// <param name="Etag">The etag of the last one.</param>
/// <param name="Events">The events in order.</param>
internal sealed record KeptChange(Etag Etag, IReadOnlyList<KvEvent> Events);
