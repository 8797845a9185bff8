namespace KvCluster.Node.Shards.Reads;

/// <summary>
/// Reads that wait for the leadership to be confirmed: at the leader by a heartbeat round, at a follower by asking the leader. All that arrive
/// before the next round share it. Joined from any thread; closed and answered on the shard's writer executor. Bounded by the calls that the
/// API has open.
/// </summary>
internal sealed class WaitingReads
{
    private readonly Lock _lock = new();
    private readonly Queue<Round> _asked = new();
    private Round? _gathering;
    private long _idLast;
    private bool _closed;

    /// <summary>Waits for a round that is sent after this call.</summary>
    /// <returns>The etag that a snapshot must have to answer; null if refused, because the leadership was not confirmed.</returns>
    public Task<Etag?> Join()
    {
        lock (_lock)
        {
            if (_closed)
                return Task.FromResult<Etag?>(null);
            _gathering ??= new Round();
            return _gathering.Answer.Task;
        }
    }

    /// <summary>Makes the failed conditions that the store holds by now wait for the same round as reads that arrive now.</summary>
    /// <param name="heldReadAnswers">How many failed conditions the store has ever held.</param>
    public void JoinConditions(long heldReadAnswers)
    {
        lock (_lock)
        {
            _gathering ??= new Round();
            _gathering.HeldReadAnswers = heldReadAnswers;
        }
    }

    /// <summary>Closes the group of reads that share the next round and returns the id under which that round is requested.</summary>
    public bool TryClose(out long id)
    {
        lock (_lock)
        {
            id = _idLast;
            if (_gathering is null)
                return false;
            id = _gathering.Id = ++_idLast;
            _asked.Enqueue(_gathering);
            _gathering = null;
            return true;
        }
    }

    /// <summary>Answers every round requested with this id or a lower one.</summary>
    /// <param name="id">The round's id.</param>
    /// <param name="etag">The etag that a snapshot must have to answer; null refuses the reads.</param>
    /// <returns>The last of the store's held answers that waited for one of them; 0 if none did.</returns>
    public long AnswerUpTo(long id, Etag? etag)
    {
        var heldReadAnswers = 0L;
        while (TryDequeue(id, out var round))
        {
            heldReadAnswers = Math.Max(heldReadAnswers, round.HeldReadAnswers);
            round.Answer.SetResult(etag);
        }

        return heldReadAnswers;
    }

    /// <summary>Refuses all reads, including those not requested yet and those that come later, because the replica stops.</summary>
    public void RefuseAll()
    {
        lock (_lock)
            _closed = true;
        TryClose(out var idLast);
        AnswerUpTo(idLast, etag: null);
    }

    private bool TryDequeue(long id, out Round round)
    {
        lock (_lock)
        {
            round = default!;
            return _asked.TryPeek(out var first) && first.Id <= id && _asked.TryDequeue(out round!);
        }
    }

    private sealed class Round
    {
        public long Id { get; set; }

        public long HeldReadAnswers { get; set; }

        // Continuations run asynchronously, so that a reader's code never runs on the writer.
        public TaskCompletionSource<Etag?> Answer { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);
    }
}
