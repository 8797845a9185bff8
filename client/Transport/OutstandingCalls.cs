using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// The places of the calls of one connection that wait to be sent or for a reply, by id. The number of places is fixed. An id consists of a place and a
/// sequence number, so a late reply to an older call of the place finds nothing. Shards share the places (<see cref="FairPlaces"/>), and a call that ended
/// after it was sent has none, so calls to a stuck shard do not block others. Whether a call is sent or answered is decided by its
/// <see cref="CallProgress"/>. Thread-safe.
/// </summary>
internal sealed class OutstandingCalls
{
    private const int PlaceBits = 16;

    /// <summary>
    /// The part of a call's time that it must still have when it gets its place: a quarter. Under more than a node can do, the first of a line are those whose
    /// deadline is next. They would all be sent too late to be answered, and the outcome of a change that was sent and not answered is unknown.
    /// </summary>
    private const int AnswerPart = 4;

    // What a call without a place is told to wait. Less is no wait on a busy machine, and a guess for longer is no better than to look again.
    private static readonly TimeSpan PlaceAfterMin = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan PlaceAfterMax = TimeSpan.FromSeconds(10);

    private readonly Lock _lock = new();
    private readonly PendingCall?[] _calls;
    private readonly ulong[] _ids;
    private readonly Stack<int> _free;
    private readonly FairPlaces _places;
    private readonly Dictionary<FairPlaces.Share, Line> _waiting = [];
    private readonly Action<ulong> _givenUp;
    private ulong _number;

    /// <param name="capacity">The number of places.</param>
    /// <param name="givenUp">Called with the ids of calls that were sent and for which nobody waits any more: at most one for each place until the next call
    /// in it is sent.</param>
    public OutstandingCalls(int capacity, Action<ulong> givenUp)
    {
        ArgumentOutOfRangeException.ThrowIfGreaterThan(capacity, 1 << PlaceBits);
        _givenUp = givenUp;
        _calls = new PendingCall?[capacity];
        _ids = new ulong[capacity];
        _free = new Stack<int>(Enumerable.Range(0, capacity).Reverse());
        _places = new FairPlaces(capacity);
    }

    /// <summary>Reserves a place for <see cref="Add"/> if one is free for calls like this one.</summary>
    public bool TryTakePlace(PendingCall call)
    {
        lock (_lock)
        {
            var isFree = _places.TryTake(call.Shard, call.Method.IsChange(), call.Request.Length, out var share);
            call.Share = share;
            return isFree;
        }
    }

    /// <summary>
    /// Waits for a place, after <see cref="TryTakePlace"/> found none. Returns null when it has one. If the call still has none when three quarters of its time
    /// are over, it returns after what time it would probably have had one, by how many of those before it got theirs meanwhile.
    /// </summary>
    public async Task<TimeSpan?> TakePlaceAsync(PendingCall call, CancellationToken cancellationToken)
    {
        var share = call.Share!;
        var place = new LinkedListNode<Waiter>(new Waiter(call.Request.Length));
        var since = Environment.TickCount64;
        int before;
        long servedBefore;
        lock (_lock)
        {
            if (_places.TryTake(share, place.Value.RequestBytes))
                return null;
            if (!_waiting.TryGetValue(share, out var line))
                _waiting[share] = line = new Line();
            line.Waiters.AddLast(place);
            (before, servedBefore) = (share.Waiters++, line.Served);
        }
        try
        {
            var left = Math.Clamp(call.DeadlineMs - since, 0, int.MaxValue);
            await place.Value.Task.WaitAsync(TimeSpan.FromMilliseconds(left - (left / AnswerPart)), cancellationToken).ConfigureAwait(false);
            return null;
        }
        catch (TimeoutException)
        {
            return TryWithdraw(share, place, out var served) ? PlaceAfter(Environment.TickCount64 - since, served - servedBefore, before) : null;
        }
        catch (OperationCanceledException) when (!TryWithdraw(share, place, out _))
        {
            // The call was given a place at the moment of its cancellation, which takes effect once the call is open.
            return null;
        }
    }

    /// <summary>Puts the call in a reserved place and gives it its id.</summary>
    public void Add(PendingCall call)
    {
        lock (_lock)
        {
            var place = _free.Pop();
            _calls[place] = call;
            _ids[place] = (++_number << PlaceBits) | (uint)place;
            (call.OpenIn, call.Id) = (this, _ids[place]);
        }
    }

    /// <summary>Answers the call that the reply is for. A reply to a call that has ended is ignored.</summary>
    public void Complete(Reply reply) =>
        Take(reply.Id, static call => call.Progress.TryReply())?.SetAnswer(new CallAnswer(reply, true, null, false));

    /// <summary>Frees the place of a call that will not be sent, if it still has one, and does not answer it.</summary>
    public void Withdraw(ulong id) => Take(id);

    /// <summary>Answers a call that its caller cancelled.</summary>
    public void Cancel(ulong id) => End(id, "cancelled", deadlinePassed: false);

    /// <summary>Answers the calls whose deadline has passed.</summary>
    public void Expire(long nowMs)
    {
        for (var place = 0; place < _calls.Length; place++)
        {
            // Reads the id first. If the place is reused in between, the old id finds nothing.
            var id = Volatile.Read(ref _ids[place]);
            if (Volatile.Read(ref _calls[place]) is { } call && call.DeadlineMs <= nowMs && call.Progress.IsOpen)
                End(id, "no answer in time", deadlinePassed: true);
        }
    }

    /// <summary>Answers the calls that may try another node, while there is no connection and so nothing was sent.</summary>
    public void FailImpatient(string failure)
    {
        for (var place = 0; place < _calls.Length; place++)
        {
            var id = Volatile.Read(ref _ids[place]);
            if (Volatile.Read(ref _calls[place]) is { IsPatient: false }
                && Take(id, static call => !call.IsPatient && call.Progress.TryEndUnsent()) is { } call)
            {
                call.SetAnswer(new CallAnswer(null, false, failure, false));
            }
        }
    }

    /// <summary>Answers all calls when the stream broke, because no reply will arrive any more.</summary>
    /// <param name="failure">Why it broke.</param>
    /// <param name="isRefused">The node has read none of the calls.</param>
    public void FailAll(string failure, bool isRefused = false)
    {
        for (var place = 0; place < _calls.Length; place++)
        {
            if (Take(Volatile.Read(ref _ids[place])) is { } call && call.Progress.TryEnd(out var wasSent))
                call.SetAnswer(new CallAnswer(null, wasSent && !isRefused, failure, false));
        }
    }

    private static int PlaceOf(ulong id) => (int)(id & ((1 << PlaceBits) - 1));

    /// <summary>
    /// Answers a call that nobody waits for any more. If it was sent, its place is free for another. If not, it keeps the place until the sender finds it in
    /// the queue and withdraws it, so that the queue never has more entries than there are places.
    /// </summary>
    private void End(ulong id, string failure, bool deadlinePassed)
    {
        PendingCall call;
        bool wasSent;
        lock (_lock)
        {
            if (Find(id) is not { } found || !found.Progress.TryEnd(out wasSent))
                return;
            call = found;
            if (wasSent)
                Free(PlaceOf(id), call);
        }
        if (wasSent)
            _givenUp(id);
        call.SetAnswer(new CallAnswer(null, wasSent, failure, deadlinePassed));
    }

    private PendingCall? Take(ulong id) => Take(id, static _ => true);

    private PendingCall? Take(ulong id, Func<PendingCall, bool> isWanted)
    {
        lock (_lock)
        {
            if (Find(id) is not { } call || !isWanted(call))
                return null;
            Free(PlaceOf(id), call);
            return call;
        }
    }

    // The caller holds the lock.
    private PendingCall? Find(ulong id) => PlaceOf(id) is var place && place < _calls.Length && _ids[place] == id ? _calls[place] : null;

    // The caller holds the lock.
    private void Free(int place, PendingCall call)
    {
        _calls[place] = null;
        _free.Push(place);
        _places.Return(call.Share!, call.Request.Length);
        foreach (var (share, line) in _waiting)
        {
            while (line.Waiters.First is { } first && _places.TryTake(share, first.Value.RequestBytes))
            {
                line.Waiters.RemoveFirst();
                line.Served++;
                share.Waiters--;
                first.Value.SetResult();
            }
            if (line.Waiters.Count == 0)
                _waiting.Remove(share);
        }
    }

    // Those before it that gave up count as if they still waited, because they will come again. Otherwise each of those that give up at once would be told the
    // time of the first one, and they would all come at once.
    private static TimeSpan PlaceAfter(long waitedMs, long served, int before)
    {
        var wait = TimeSpan.FromMilliseconds((double)waitedMs / Math.Max(1, served) * (before - served + 1));
        return wait < PlaceAfterMin ? PlaceAfterMin : wait < PlaceAfterMax ? wait : PlaceAfterMax;
    }

    // Returns false if it was given a place before, and otherwise how many of its line were given one until now.
    private bool TryWithdraw(FairPlaces.Share share, LinkedListNode<Waiter> place, out long served)
    {
        served = 0;
        lock (_lock)
        {
            if (place.List is not { } waiting)
                return false;
            served = _waiting[share].Served;
            waiting.Remove(place);
            share.Waiters--;
            if (waiting.Count == 0)
                _waiting.Remove(share);
            return true;
        }
    }

    /// <summary>The calls that wait for a place of one share.</summary>
    private sealed class Line
    {
        public LinkedList<Waiter> Waiters { get; } = new();

        /// <summary>How many of its calls were given a place.</summary>
        public long Served { get; set; }
    }

    /// <summary>A call that waits for a place.</summary>
    private sealed class Waiter(int requestBytes) : TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously)
    {
        public int RequestBytes => requestBytes;
    }
}
