namespace KvCluster.Replication.Leading;

/// <summary>
/// Heartbeat rounds of one leadership and the reads that wait for one. A read is confirmed by any round that was sent after it arrived and that a
/// majority answered. Reads that arrive while a round is in progress share the next one.
/// </summary>
internal sealed class ReadRounds(int roundsKept)
{
    private readonly long[] _sentAtUs = new long[roundsKept];

    // With increasing ids and rounds: each waits for a round that was sent after it arrived (R15).
    private readonly Queue<(long ReadId, ulong Round)> _waiting = new();

    /// <summary>The newest round sent; 0 before the first.</summary>
    public ulong Newest { get; private set; }

    /// <summary>A read waits for a round that is not sent yet.</summary>
    public bool Wanted { get; private set; }

    /// <summary>Starts a round.</summary>
    public ulong Start(long nowUs)
    {
        Newest++;
        _sentAtUs[Newest % (ulong)_sentAtUs.Length] = nowUs;
        Wanted = false;
        return Newest;
    }

    /// <summary>When a round was sent. False if it is too old to be remembered or was never sent.</summary>
    public bool TryGetSentUs(ulong round, out long sentUs)
    {
        var known = round > 0 && round <= Newest && Newest - round < (ulong)_sentAtUs.Length;
        sentUs = known ? _sentAtUs[round % (ulong)_sentAtUs.Length] : 0;
        return known;
    }

    /// <summary>A read waits for the next round.</summary>
    public void Add(long readId) => _waiting.Enqueue((readId, Next()));

    /// <summary>Requests another round and returns its number.</summary>
    public ulong Next()
    {
        Wanted = true;
        return Newest + 1;
    }

    /// <summary>A majority has answered this round. Returns the last read that it confirms.</summary>
    public bool TryConfirm(ulong round, out long readIdLast)
    {
        Invariant.Check(round <= Newest, $"A majority answered round {round}, but the newest is {Newest}.");
        readIdLast = 0;
        while (_waiting.TryPeek(out var first) && first.Round <= round)
        {
            readIdLast = first.ReadId;
            _waiting.Dequeue();
        }

        return readIdLast != 0;
    }

    /// <summary>Drops all reads; returns the last of them, or 0.</summary>
    public long RefuseAll()
    {
        var last = _waiting.Count == 0 ? 0 : _waiting.Last().ReadId;
        _waiting.Clear();
        Wanted = false;
        return last;
    }
}
