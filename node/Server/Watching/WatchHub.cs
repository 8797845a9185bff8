using KvCluster.Storage;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Threads;
using KvCluster.Wire;

namespace KvCluster.Node.Watching;

/// <summary>
/// The watchers of one replica. A pump reads each committed record once, behind the replica's applied etag, decodes it, and gives its events to the watchers
/// whose ranges have them. A watcher that takes too little loses what waits for it and reads the journal by itself, from what it has taken, until it is back
/// with the hub: it lags in the journal and not in memory (<see cref="SlowWatchers"/>). Any thread; the pump and what reads the journal run on the thread pool,
/// one step of the pump at a time.
/// </summary>
/// <remarks>
/// Under the lock, <see cref="Head"/> is the record up to which every live watcher has taken its events or has them waiting. So the position of a watcher for
/// which nothing waits is the head, and no bookmark is ahead of its events.
/// </remarks>
internal sealed class WatchHub : IDisposable
{
    /// <summary>How long a watcher may be told nothing. With the time between two looks less than the second that the contract promises.</summary>
    private static readonly TimeSpan BookmarkAge = TimeSpan.FromMilliseconds(700);

    /// <summary>After this time the snapshot for previous values is replaced, so that a quiescent shard has none that is old.</summary>
    private static readonly TimeSpan SnapshotAge = TimeSpan.FromSeconds(5);

    private readonly Lock _lock = new();
    private readonly Func<ReplicaStore> _store;
    private readonly WatchLimits _limits;
    private readonly TimeProvider _clock;
    private readonly ISerialExecutor? _pool;
    private readonly Action<Exception> _failed;
    private readonly RangeIndex _ranges = new();
    private readonly List<Watcher> _watchers = [];
    private readonly List<Watcher> _ahead = [];
    private readonly List<RangeIndex.Group> _found = [];
    private readonly SlowWatchers _slow;
    private readonly PreviousValues _previous = new();
    private readonly Action<TailPage> _take;
    private readonly Dictionary<WatchPart, SharedMessage> _shared = [];

    /// <summary>What was read last of the journal. Until the next <see cref="Look"/>.</summary>
    private JournalPage? _page;
    private long _sharedBytes;
    private JournalHold? _hold;
    private ReplicaStore? _heldStore;

    private long _batches;
    private int _previousCount;
    private WatchEnd _end;
    private int _pump;

    /// <param name="store">The store in use.</param>
    /// <param name="limits">The bounds of memory and journal.</param>
    /// <param name="clock">For bookmarks.</param>
    /// <param name="failed">Gets an exception that ends all watchers, which is a bug.</param>
    /// <param name="pool">Runs the steps; null: the thread pool.</param>
    public WatchHub(Func<ReplicaStore> store, WatchLimits limits, TimeProvider clock, Action<Exception> failed, ISerialExecutor? pool = null)
    {
        (_store, _limits, _clock, _failed, _pool) = (store, limits, clock, failed, pool);
        Head = store().Tail.Committed;
        _slow = new SlowWatchers(_lock, _watchers, limits.KeptBytesMax, Head);
        _take = page => Post(() => Take(page));
    }

    /// <summary>The last record that was given to the live watchers. Under the lock.</summary>
    private Etag Head { get; set; }

    /// <summary>How many watchers it has.</summary>
    public int Count
    {
        get
        {
            lock (_lock)
                return _watchers.Count;
        }
    }

    /// <summary>How many changes the slowest watcher has not taken yet.</summary>
    public long Lag
    {
        get
        {
            lock (_lock)
            {
                var committed = _store().Tail.Committed.Change;
                return _watchers.Count == 0 ? 0 : _watchers.Max(watcher => (long)Math.Max(committed, watcher.Taken.Change) - (long)watcher.Taken.Change);
            }
        }
    }

    /// <summary>Adds a watcher.</summary>
    /// <param name="range">What it watches.</param>
    /// <param name="after">The position after which it begins; null: the newest one here. <see cref="CatchUp"/> tells whether it exists.</param>
    /// <param name="withSets">Whether also sets.</param>
    /// <param name="withPrevious">Whether it wants to know what was replaced.</param>
    public Watcher Join(WatchedRange range, Etag? after, bool withSets, bool withPrevious)
    {
        var watcher = new Watcher(this, range, withSets, withPrevious, _pool) { TakenTimestamp = _clock.GetTimestamp() };
        lock (_lock)
        {
            watcher.Taken = after ?? _store().Tail.Committed;
            watcher.End = _end;
            watcher.PlaceInHub = _watchers.Count;
            _watchers.Add(watcher);
            _ranges.Add(watcher);
            _previousCount += withPrevious ? 1 : 0;
            if (after is null)
                MeetLocked(watcher);
            if (_hold is null || watcher.Taken < _hold.After)
                HoldLocked();
        }
        // The watcher may be ahead of the pump, and previous values need a snapshot, which the pump opens.
        Wake();
        return watcher;
    }

    /// <summary>Removes a watcher. What waits for it is forgotten.</summary>
    public void Leave(Watcher watcher)
    {
        lock (_lock)
        {
            if (watcher.End == WatchEnd.Left)
                return;
            watcher.End = WatchEnd.Left;
            _ranges.Remove(watcher);
            _ahead.Remove(watcher);
            _previousCount -= watcher.WithPrevious ? 1 : 0;
            // The last watcher takes the free place.
            _watchers[watcher.PlaceInHub] = _watchers[^1];
            _watchers[watcher.PlaceInHub].PlaceInHub = watcher.PlaceInHub;
            _watchers.RemoveAt(_watchers.Count - 1);
            _slow.ForgetPendingLocked(watcher);
        }
    }

    /// <summary>Ends all watchers, and those that join later.</summary>
    public void EndAll(WatchEnd end)
    {
        var waking = new List<Watcher>();
        lock (_lock)
        {
            _end = end;
            foreach (var watcher in _watchers)
            {
                watcher.End = end;
                SignalLocked(watcher, waking);
            }
        }
        Wake(waking);
        // The pump owns the snapshot, and drops it in its last step.
        Wake();
    }

    /// <summary>Waits until there is something to ask <see cref="Next"/> for.</summary>
    public ValueTask WaitAsync(Watcher watcher)
    {
        lock (_lock)
            return watcher.Wait();
    }

    /// <summary>Has a watcher's sender look again, because its caller is gone.</summary>
    public void Interrupt(Watcher watcher)
    {
        var waking = new List<Watcher>(1);
        lock (_lock)
            SignalLocked(watcher, waking);
        Wake(waking);
    }

    /// <summary>What a watcher's sender has to do next. Events that it is to send wait until it takes them.</summary>
    /// <param name="watcher">The watcher.</param>
    /// <param name="bytesMax">About how many bytes of events are given. Those of a record are given together.</param>
    /// <param name="runs">Receives events, in order.</param>
    /// <param name="position">The position that the watcher has with these events.</param>
    public WatchStep Next(Watcher watcher, long bytesMax, List<WatchRun> runs, out Etag position)
    {
        runs.Clear();
        lock (_lock)
        {
            position = watcher.Taken;
            if (watcher.End != WatchEnd.None)
                return WatchStep.Ended;
            if (watcher.State == WatchState.Behind)
                return WatchStep.CatchUp;
            if (watcher.Newest.Count > 0)
                position = PeekLocked(watcher, bytesMax, runs);
            else if (!watcher.IsBookmarkDue)
                return WatchStep.Wait;
            if (watcher.State == WatchState.Live && runs.Count == watcher.Waiting)
                position = Head;
            return WatchStep.Send;
        }
    }

    /// <summary>A watcher's sender has room for what it was to send, and takes it.</summary>
    /// <param name="watcher">The watcher.</param>
    /// <param name="runs">What <see cref="Next"/> gave.</param>
    /// <param name="position">The position that it gave.</param>
    /// <returns>False if the watcher lags since then; it asks again.</returns>
    public bool TryTake(Watcher watcher, List<WatchRun> runs, Etag position)
    {
        lock (_lock)
        {
            // Waiting runs are only added behind those that were given to the sender, unless the hub has forgotten all of them.
            if (watcher.State == WatchState.Behind || watcher.End != WatchEnd.None || watcher.Waiting < runs.Count)
                return false;
            for (var count = 0; count < runs.Count; count++)
            {
                if (!watcher.Pending.TryDequeue(out _))
                    watcher.Newest = default;
            }
            watcher.Taken = position;
            watcher.IsBookmarkDue = false;
            watcher.TakenTimestamp = _clock.GetTimestamp();
            return true;
        }
    }

    /// <summary>
    /// The message of some events, for all watchers that send these with the same options. It is made once, and kept until the next <see cref="Look"/>. Whoever
    /// gets it returns it.
    /// </summary>
    /// <param name="part">What it has.</param>
    /// <param name="bytes">Its size.</param>
    /// <param name="encode">Makes it.</param>
    public MessageBytes Share(WatchPart part, int bytes, Func<MessageBytes> encode)
    {
        SharedMessage? shared;
        IReadOnlyList<SharedMessage> forgotten = [];
        lock (_lock)
        {
            if (!_shared.TryGetValue(part, out shared))
            {
                if (_sharedBytes + bytes > WatchLimits.SharedBytesMax)
                    forgotten = RemoveSharedLocked();
                _sharedBytes += bytes;
                _shared.Add(part, shared = new SharedMessage());
            }
        }
        Forget(forgotten);
        return shared.Get(encode);
    }

    /// <summary>
    /// Reads what a watcher lacks that is behind, a page of it. If it then has what the hub has, it is live, unless it still sends its beginning. Called by the
    /// watcher's sender, and not again before the answer.
    /// </summary>
    /// <param name="watcher">The watcher.</param>
    /// <param name="done">Called once, in a step of the pool.</param>
    /// <param name="beginning">What it has sent of its beginning; null if that is complete.</param>
    public void CatchUp(Watcher watcher, Action<CaughtUp> done, SentBeginning? beginning = null)
    {
        var store = _store();
        Etag after;
        JournalPage? known;
        lock (_lock)
        {
            after = watcher.Taken;
            // Several watchers are often behind at the same position, which is that before a large record.
            known = _page is { } page && page.Store == store && page.After == after ? page : null;
        }
        if (known is not null)
            Post(() => done(AdvanceOrEnd(watcher, known, beginning)));
        else
        {
            store.Tail.Read(
                after, WatchLimits.CatchUpBytes, withSnapshot: false, page => Post(() => done(AdvanceOrEnd(watcher, store, after, page, beginning))));
        }
    }

    /// <summary>
    /// A watcher that still sends its beginning has all of it up to a position, because that is the state that it goes on with, and none of its keys was sent.
    /// </summary>
    public void Skip(Watcher watcher, Etag position)
    {
        lock (_lock)
            watcher.Taken = position;
    }

    /// <summary>There is no room to send what was read for a watcher. It has taken nothing after a position, and reads that again by itself.</summary>
    public void Return(Watcher watcher, Etag position)
    {
        lock (_lock)
        {
            _ahead.Remove(watcher);
            _slow.LagLocked(watcher);
            watcher.Taken = position;
            HoldLocked();
        }
    }

    /// <summary>Whether a watcher gets no more.</summary>
    public bool HasEnded(Watcher watcher)
    {
        lock (_lock)
            return watcher.End != WatchEnd.None;
    }

    /// <summary>Has the pump look for more. Any thread; does not block.</summary>
    public void Wake()
    {
        if (Interlocked.Exchange(ref _pump, 2) == 0)
            Post(Read);
    }

    /// <summary>
    /// The replica has applied more. On its writer executor, where the pump reads at once what is in memory, which saves two changes of threads on the way to
    /// the watchers. Does not block.
    /// </summary>
    public void Applied()
    {
        if (Interlocked.Exchange(ref _pump, 2) != 0)
            return;
        if (!_lock.TryEnter())
        {
            Post(Read);
            return;
        }
        try
        {
            ReadLocked(isHere: true);
        }
        finally
        {
            _lock.Exit();
        }
    }

    /// <summary>
    /// Called several times a second: says which watchers are to be told their positions, renews what is kept for them, and has those look again whose store
    /// was replaced.
    /// </summary>
    public void Look()
    {
        var waking = new List<Watcher>();
        IReadOnlyList<SharedMessage> forgotten;
        var isRead = false;
        lock (_lock)
        {
            var now = _clock.GetTimestamp();
            foreach (var watcher in _watchers)
            {
                if (watcher.State == WatchState.Behind)
                {
                    if (watcher.IsWaiting)
                        SignalLocked(watcher, waking);
                }
                else if (watcher.Newest.Count == 0 && !watcher.IsBookmarkDue && _clock.GetElapsedTime(watcher.TakenTimestamp, now) >= BookmarkAge)
                {
                    watcher.IsBookmarkDue = true;
                    SignalLocked(watcher, waking);
                }
            }
            HoldLocked();
            forgotten = RemoveSharedLocked();
            _page = null;
            isRead = _previousCount > 0 || _store().Tail.Committed > Head;
        }
        Forget(forgotten);
        Wake(waking);
        if (isRead)
            Wake();
    }

    /// <summary>Ends it. Nothing joins any more.</summary>
    public void Dispose()
    {
        EndAll(WatchEnd.Stopped);
        IReadOnlyList<SharedMessage> forgotten;
        lock (_lock)
        {
            _hold?.Dispose();
            _hold = null;
            forgotten = RemoveSharedLocked();
        }
        Forget(forgotten);
    }

    private static void Wake(List<Watcher> waking)
    {
        foreach (var watcher in waking)
            watcher.Wake();
    }

    private void Post(Action step)
    {
        if (_pool is null)
            ThreadPool.UnsafeQueueUserWorkItem(static one => one(), step, preferLocal: false);
        else
            _pool.Post(new WorkAction(step));
    }

    // One step of the pump; the next one follows when its page was taken.
    private void Read()
    {
        lock (_lock)
            ReadLocked(isHere: false);
    }

    private void ReadLocked(bool isHere)
    {
        Invariant.CheckHeld(_lock);
        Volatile.Write(ref _pump, 1);
        var (after, tail) = (Head, _store().Tail);
        var withSnapshot = _previousCount > 0 && _end == WatchEnd.None;
        if (!withSnapshot)
            _previous.Dispose();
        if (_end != WatchEnd.None)
            return;
        // A snapshot in a quiescent shard is renewed, and not taken each time.
        withSnapshot &= _previous.OpenedTimestamp is not { } opened || tail.Committed > after || _clock.GetElapsedTime(opened) >= SnapshotAge;
        if (!withSnapshot && tail.Committed <= after)
            Rest();
        else if (isHere)
            tail.ReadHere(after, WatchLimits.PumpBytes, withSnapshot, _take);
        else
            tail.Read(after, WatchLimits.PumpBytes, withSnapshot, _take);
    }

    private void Rest()
    {
        if (Interlocked.CompareExchange(ref _pump, 0, 1) != 1)
            Post(Read);
    }

    private void Take(TailPage page)
    {
        var waking = new List<Watcher>();
        try
        {
            if (page.State == TailState.Read)
                Give(page, waking);
            else
                Skip(page, waking);
        }
        catch (Exception failure)
        {
            page.Snapshot?.Dispose();
            Fail(failure);
        }
        Wake(waking);
        // The rest of what is committed, if the page was full.
        if (page.State == TailState.Read && page.Until < page.Committed)
            Post(Read);
        else
            Rest();
    }

    private void Give(TailPage page, List<Watcher> waking)
    {
        foreach (var body in page.Bodies)
        {
            var batch = WatchBatch.Decode(body);
            if (_previous.OpenedTimestamp is not null)
                _previous.Fill(batch, WantsPrevious(batch));
            lock (_lock)
                GiveLocked(batch, waking);
        }
        if (page.Snapshot is { } snapshot)
            _previous.Adopt(snapshot, _clock.GetTimestamp());
    }

    // For each event whether a watcher wants to know what it has replaced.
    private bool[]? WantsPrevious(WatchBatch batch)
    {
        bool[]? wants = null;
        lock (_lock)
        {
            for (var index = 0; _previousCount > 0 && index < batch.Events.Length; index++)
            {
                _ranges.Find(batch.Events[index], _found);
                if (_found.Exists(static group => group.PreviousCount > 0))
                    (wants ??= new bool[batch.Events.Length])[index] = true;
            }
        }
        return wants;
    }

    private void GiveLocked(WatchBatch batch, List<Watcher> waking)
    {
        Invariant.CheckHeld(_lock);
        Invariant.Check(batch.Etag > Head, $"The events of {batch.Etag} were to be given to watchers that have those up to {Head}.");
        batch.Number = ++_batches;
        for (var index = 0; index < batch.Events.Length; index++)
        {
            _ranges.Find(batch.Events[index], _found);
            foreach (var group in _found)
            {
                foreach (var watcher in group.Watchers)
                {
                    if (watcher.State == WatchState.Live && _slow.AddLocked(watcher, batch, index))
                        SignalLocked(watcher, waking);
                }
            }
        }
        Head = batch.Etag;
        if (batch.Events.Length > 0)
            _slow.KeepLocked(batch);
        for (var place = _ahead.Count - 1; place >= 0; place--)
        {
            var watcher = _ahead[place];
            if (watcher.Taken > Head)
                continue;
            _ahead.RemoveAt(place);
            MeetLocked(watcher);
            SignalLocked(watcher, waking);
        }
    }

    /// <summary>
    /// The journal does not have what follows the head: the store was replaced by a received state. Each watcher finds out whether it can go on.
    /// </summary>
    private void Skip(TailPage page, List<Watcher> waking)
    {
        if (page.State is TailState.Stopped or TailState.Ahead)
            return;
        lock (_lock)
        {
            Head = page.Committed;
            _slow.RestartLocked(Head);
            _ahead.Clear();
            foreach (var watcher in _watchers)
            {
                _slow.LagLocked(watcher);
                SignalLocked(watcher, waking);
            }
        }
        _previous.Dispose();
    }

    // Gives the waiting events, up to a number of bytes, without taking them. Returns the position that the watcher has with these events.
    private Etag PeekLocked(Watcher watcher, long bytesMax, List<WatchRun> runs)
    {
        Invariant.CheckHeld(_lock);
        var bytes = 0L;
        foreach (var run in watcher.Pending)
        {
            if (!TryAdd(run))
                return runs[^1].Batch.Etag;
        }
        TryAdd(watcher.Newest);
        return runs[^1].Batch.Etag;

        bool TryAdd(in WatchRun run)
        {
            if (runs.Count == 0 || run.Batch != runs[^1].Batch)
            {
                if (runs.Count > 0 && bytes + run.Batch.Bytes > bytesMax)
                    return false;
                bytes += run.Batch.Bytes;
            }
            runs.Add(run);
            return true;
        }
    }

    // Returns the messages to forget. The caller does that without the lock, because Forget waits for a message that is being encoded.
    private IReadOnlyList<SharedMessage> RemoveSharedLocked()
    {
        Invariant.CheckHeld(_lock);
        if (_shared.Count == 0)
            return [];
        SharedMessage[] removed = [.. _shared.Values];
        _shared.Clear();
        _sharedBytes = 0;
        return removed;
    }

    private static void Forget(IReadOnlyList<SharedMessage> messages)
    {
        foreach (var message in messages)
            message.Forget();
    }

    private CaughtUp AdvanceOrEnd(Watcher watcher, ReplicaStore store, Etag after, TailPage page, SentBeginning? beginning)
    {
        if (page.State != TailState.Read)
            return new CaughtUp(page.State, page.Oldest, after, []);
        JournalPage read;
        try
        {
            read = new JournalPage(store, after, page);
        }
        catch (Exception failure)
        {
            return Stopped(page, after, failure);
        }
        if (page.Bodies.Count > 0)
        {
            lock (_lock)
                _page = read;
        }
        return AdvanceOrEnd(watcher, read, beginning);
    }

    private CaughtUp AdvanceOrEnd(Watcher watcher, JournalPage read, SentBeginning? beginning)
    {
        try
        {
            return Advance(watcher, read, beginning);
        }
        catch (Exception failure)
        {
            return Stopped(read.Page, read.After, failure);
        }
    }

    private CaughtUp Stopped(TailPage page, Etag after, Exception failure)
    {
        Fail(failure);
        return new CaughtUp(TailState.Stopped, page.Oldest, after, []);
    }

    private void Fail(Exception failure)
    {
        _failed(failure);
        EndAll(WatchEnd.Stopped);
    }

    private CaughtUp Advance(Watcher watcher, JournalPage read, SentBeginning? beginning)
    {
        var (after, page, runs) = (read.After, read.Page, new List<WatchRun>());
        // This replica's state may be older than the one that the caller has from another replica.
        var until = beginning is { } sent ? Etag.Max(after, Etag.Min(sent.Until, page.Until)) : page.Until;
        // The beginning has no entries of sets, so changes of sets follow only after it.
        var (range, withSets) = beginning is { } begun ? (begun.Keys, false) : (watcher.Range, watcher.WithSets);
        foreach (var batch in read.Batches)
        {
            if (batch.Etag <= until)
                AddRuns(range, withSets, after, batch, runs);
        }
        lock (_lock)
        {
            if (watcher is { State: WatchState.Behind, End: WatchEnd.None })
            {
                watcher.Taken = until;
                watcher.TakenTimestamp = _clock.GetTimestamp();
                if (beginning is null)
                    MeetLocked(watcher);
            }
        }
        Wake();
        return new CaughtUp(TailState.Read, page.Oldest, until, runs);
    }

    private static void AddRuns(in WatchedRange range, bool withSets, Etag after, WatchBatch batch, List<WatchRun> runs)
    {
        for (var index = 0; index < batch.Events.Length; index++)
        {
            ref readonly var happened = ref batch.Events[index];
            if (happened.Etag <= after || (happened.IsOfSet && !withSets) || !happened.IsIn(range))
                continue;
            if (runs.Count > 0 && runs[^1].Batch == batch && runs[^1].First + runs[^1].Count == index)
                runs[^1] = runs[^1] with { Count = runs[^1].Count + 1 };
            else
                runs.Add(new WatchRun(batch, index, 1));
        }
    }

    /// <summary>Makes a watcher live that has taken what the hub no longer keeps.</summary>
    private void MeetLocked(Watcher watcher)
    {
        Invariant.CheckHeld(_lock);
        if (watcher.Taken > Head)
        {
            watcher.State = WatchState.Ahead;
            _ahead.Add(watcher);
            return;
        }
        _slow.ResumeLocked(watcher);
    }

    private void SignalLocked(Watcher watcher, List<Watcher> waking)
    {
        Invariant.CheckHeld(_lock);
        if (!watcher.IsWaiting)
        {
            watcher.IsSignalled = true;
            return;
        }
        watcher.IsWaiting = false;
        waking.Add(watcher);
    }

    // Keeps the journal that the slowest watcher needs, in the store in use.
    private void HoldLocked()
    {
        Invariant.CheckHeld(_lock);
        var store = _store();
        var after = Head;
        foreach (var watcher in _watchers)
            after = Etag.Min(after, watcher.Taken);
        if (_hold is not null && _heldStore == store)
        {
            _hold.After = after;
            return;
        }
        _hold?.Dispose();
        (_hold, _heldStore) = (_end == WatchEnd.None ? store.Tail.Holds.Add("watch", after, _limits.JournalBytesMax) : null, store);
    }
}
