namespace KvCluster.Storage.Journal;

/// <summary>
/// Who still reads the journal besides followers and recovery, and from where. Recycling asks it how much to keep. On a full disk nothing is kept for holds, so
/// a holder must expect that the journal it needs is gone. Any thread.
/// </summary>
internal sealed class JournalHolds
{
    private readonly Lock _lock = new();
    private readonly List<JournalHold> _holds = [];

    /// <summary>Adds a hold, until it is disposed.</summary>
    /// <param name="name">What the hold is for.</param>
    /// <param name="after">The record after which the journal is needed.</param>
    /// <param name="bytesMax">The most bytes of journal that it keeps. What is older is recycled under its holder.</param>
    public JournalHold Add(string name, Etag after, long bytesMax)
    {
        var hold = new JournalHold(this, name, after, bytesMax);
        lock (_lock)
            _holds.Add(hold);
        return hold;
    }

    /// <summary>How many of the bytes before an entry of the index the holds need, in whole segments, as these are recycled. Writer executor.</summary>
    /// <param name="index">The journal's records.</param>
    /// <param name="end">The position of the entry.</param>
    public long BytesBefore(JournalIndex index, int end)
    {
        var bytes = 0L;
        lock (_lock)
        {
            foreach (var hold in _holds)
            {
                var needed = index.FirstAfter(hold.After);
                if (needed < end)
                    bytes = Math.Max(bytes, Math.Min(hold.BytesMax, index.BytesOf(index.FirstFrom(index[needed].Segment), end)));
            }
        }
        return bytes;
    }

    /// <summary>Removes a hold; a second call does nothing.</summary>
    public void Remove(JournalHold hold)
    {
        lock (_lock)
            _holds.Remove(hold);
    }
}

/// <summary>Keeps the journal after a record, within a bound. Any thread.</summary>
internal sealed class JournalHold(JournalHolds holds, string name, Etag after, long bytesMax) : IDisposable
{
    private readonly Lock _lock = new();
    private Etag _after = after;

    /// <summary>The most bytes of journal that it keeps.</summary>
    public long BytesMax => bytesMax;

    /// <summary>The record after which the journal is needed.</summary>
    public Etag After
    {
        get
        {
            lock (_lock)
                return _after;
        }
        set
        {
            lock (_lock)
                _after = value;
        }
    }

    /// <summary>Ends it.</summary>
    public void Dispose() => holds.Remove(this);

    /// <summary>For diagnostics.</summary>
    public override string ToString() => $"{name} after {After}";
}
