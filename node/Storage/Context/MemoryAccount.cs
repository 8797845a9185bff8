namespace KvCluster.Storage.Context;

/// <summary>What stores use memory for.</summary>
internal enum MemoryUse
{
    /// <summary>Changed pages that the next checkpoint writes.</summary>
    ChangedPages,

    /// <summary>Pages that only callers' snapshots of older states still need.</summary>
    ReaderPages,

    /// <summary>Pages that only snapshots of the store itself, for digests, still need.</summary>
    DigestPages,

    /// <summary>Memory for pages that is not in use: kept for the next batches, or between pages in use.</summary>
    FreePages,

    /// <summary>Bodies of journal records, which wait for the disk or to be applied, or are kept for followers.</summary>
    Journal,

    /// <summary>The index of the records of all live segments.</summary>
    JournalIndex,

    /// <summary>Requests that wait for the writer.</summary>
    Requests,
}

/// <summary>
/// The memory that all stores of a node use, and the budget that bounds it. A store joins with a <see cref="Share"/>, sets what it uses at the end of each
/// step, and asks how it must behave. From 3/8 of the budget on, the stores with most to gain are asked for a checkpoint, a few at a time, so that each is
/// done soon; what is only kept shrinks to a fair part. From half of it on, writers are slowed, up to 3/4. The last quarter is what snapshots may hold, three
/// parts of it callers' and one digests'. That is never a reason to slow writers, because neither waiting nor a checkpoint returns it: whoever holds too much
/// is ended instead. Any thread.
/// </summary>
/// <param name="budget">Bytes; the greatest number if there is no bound.</param>
/// <param name="time">The clock of pauses and repetitions.</param>
internal sealed class MemoryAccount(long budget, TimeProvider time)
{
    /// <summary>Stores whose checkpoints are awaited at a time: two for each of a node's checkpoint threads. Many at once would all be done late.</summary>
    private const int AskedMax = 4;

    /// <summary>A store with less than this to gain is not asked.</summary>
    public const long GainBytesMin = 64 << 10;

    /// <summary>
    /// The bytes of bodies that each store may keep, or have waiting for its disk, however many stores there are. Less would make every follower read what
    /// it is sent from the disk.
    /// </summary>
    private const long BodyBytesMin = 64 << 10;

    /// <summary>
    /// The bytes of index that each store may keep however many there are: some hundred records, so that a follower that was away for a moment continues
    /// from the journal and needs no snapshot.
    /// </summary>
    private const long IndexBytesMin = 32 << 10;

    /// <summary>After this time a store that has begun no checkpoint is not awaited any more: its disk is full, or what it holds is not committed.</summary>
    private static readonly TimeSpan AskAgainAfter = TimeSpan.FromMilliseconds(200);

    /// <summary>Bytes of requests that each store may have waiting, however many wait at the others.</summary>
    private const long RequestBytesMin = 64 << 10;

    /// <summary>Requests are counted in units of this many bytes, a power of two in bits: so one of 100 bytes rarely touches what all stores share.</summary>
    private const int RequestUnitBits = 14;

    /// <summary>The least interval between two looks at all stores.</summary>
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(5);

    private readonly Lock _gate = new();
    private readonly HashSet<Share> _shares = [];
    private readonly long[] _used = new long[Enum.GetValues<MemoryUse>().Length];
    private readonly GrowthPace _pace = new(budget / 2, budget - (budget / 4), TimeSpan.FromSeconds(1), time);
    private int _held;
    private long _heldTicks;
    private long _foldBytes;
    private long _askedCount;
    private long _lookAgainAt;

    /// <summary>The budget in bytes.</summary>
    public long Budget => budget;

    /// <summary>
    /// Bytes in use. A store counts when it has told, at the end of each of its steps; requests count when they come and go.
    /// </summary>
    public long Used
    {
        get
        {
            var sum = 0L;
            for (var use = 0; use < _used.Length; use++)
                sum += UsedFor((MemoryUse)use);
            return sum;
        }
    }

    /// <summary>Whether caches are to shrink, and checkpoints are wanted.</summary>
    public bool IsShort => Paced > Threshold;

    /// <summary>How long writers were held back because of the budget since the start, summed over all of them.</summary>
    public TimeSpan HeldBack => TimeSpan.FromTicks(Interlocked.Read(ref _heldTicks));

    private long Threshold => budget / 8 * 3;

    // The memory that writers take and that waiting or a checkpoint returns. What readers and digests hold is not part of it.
    private long Paced => Used - UsedFor(MemoryUse.ReaderPages) - UsedFor(MemoryUse.DigestPages);

    /// <summary>
    /// Bytes that a store's index may take for records which a checkpoint covers and which are only kept for followers. The bodies of such records are on the
    /// disk, but for records of 40 bytes the index, which takes more than that for each, outgrows the changed pages.
    /// </summary>
    public long KeptIndexBytesMax => IsShort ? Math.Max(IndexBytesMin, FairPart) : long.MaxValue;

    /// <summary>Whether a request may wait for its store's writer. All together take a quarter of the budget at most, but each store may have a few.</summary>
    /// <param name="bytes">The request's size.</param>
    /// <param name="waiting">Bytes that wait at its store already.</param>
    public bool MayWait(long bytes, long waiting) =>
        UsedFor(MemoryUse.Requests) is var all && (bytes <= (budget / 4) - all || waiting + bytes <= RequestBytesMin || all == 0);

    /// <summary>Counts the requests that wait at one store. Any thread; each change is told once, in any order.</summary>
    public void RequestsChanged(long before, long after)
    {
        var units = (after >> RequestUnitBits) - (before >> RequestUnitBits);
        if (units != 0)
            Interlocked.Add(ref _used[(int)MemoryUse.Requests], units << RequestUnitBits);
    }

    private long FairPart => budget / 8 / Math.Max(1, _shares.Count);

    /// <summary>
    /// Bytes of changed pages that a checkpoint is better not begun for while memory is plentiful: a quarter of the budget; 0 if there is none. Over many keys
    /// each put changes another page, and of two checkpoints of half the size both write most pages.
    /// </summary>
    public long ChangedPagesPlenty => budget == long.MaxValue ? 0 : budget / 4;

    /// <summary>Whether the stores together have so many changed pages that those with many should write a checkpoint.</summary>
    public bool WantsCheckpoints => UsedFor(MemoryUse.ChangedPages) >= ChangedPagesPlenty;

    /// <summary>Bytes for one use, over all stores.</summary>
    public long UsedFor(MemoryUse use) => Interlocked.Read(ref _used[(int)use]);

    /// <summary>Adds a store, which uses nothing yet.</summary>
    /// <param name="relieve">Called on any thread when the store should write a checkpoint and drop what is only cached. Must not block.</param>
    /// <param name="isUnderWay">Tells on any thread whether a checkpoint of the store is being written.</param>
    public Share Join(Action relieve, Func<bool> isUnderWay)
    {
        var share = new Share(this, relieve, isUnderWay);
        lock (_gate)
            _shares.Add(share);
        return share;
    }

    // Asks stores to return memory, until what they are about to return suffices.
    private void Look(bool isDue)
    {
        var now = time.GetTimestamp();
        if (!IsShort || (!isDue && now < Interlocked.Read(ref _lookAgainAt)))
            return;
        Interlocked.Exchange(ref _lookAgainAt, now + (long)(LookInterval.TotalSeconds * time.TimestampFrequency));
        List<Share> asked = [];
        lock (_gate)
        {
            var (awaited, coming) = (0, 0L);
            foreach (var share in _shares)
            {
                if (!share.IsAwaitedLocked(now))
                    continue;
                awaited++;
                coming += share.Gain;
            }
            for (; awaited < AskedMax && Paced - coming > Threshold && MostLocked(now) is { } most; awaited++)
            {
                (most.AskedAtLocked, most.OrderLocked) = (now, ++_askedCount);
                coming += most.Gain;
                asked.Add(most);
            }
        }
        foreach (var share in asked)
            share.Relieve();
    }

    // The one with most to gain. Those that were asked in vain come after all others, the one that was asked first before the rest of them.
    private Share? MostLocked(long now)
    {
        Invariant.CheckHeld(_gate);
        Share? most = null;
        foreach (var share in _shares)
        {
            if (share.Gain < GainBytesMin || share.IsAwaitedLocked(now))
                continue;
            if (most is null || share.OrderLocked < most.OrderLocked || (share.OrderLocked == most.OrderLocked && share.Gain > most.Gain))
                most = share;
        }
        return most;
    }

    private void Leave(Share share)
    {
        lock (_gate)
            _shares.Remove(share);
    }

    /// <summary>One store's part of the account. Set on its writer executor.</summary>
    internal sealed class Share(MemoryAccount account, Action relieve, Func<bool> isUnderWay) : IDisposable
    {
        private readonly long[] _used = new long[account._used.Length];
        private GrowthPace.Turn _turn;
        private long _gain;
        private long _foldBytes;
        private bool _isHeld;
        private bool _hasLeft;

        /// <summary>What a checkpoint, and dropping what is only cached, would return. Any thread.</summary>
        public long Gain => Interlocked.Read(ref _gain);

        /// <summary>When the store was asked for relief; 0: it is not awaited. Under the account's lock.</summary>
        internal long AskedAtLocked { get; set; }

        /// <summary>How many had been asked when the store was asked in vain; 0: it has helped since, or was not asked. Under the account's lock.</summary>
        internal long OrderLocked { get; set; }

        /// <summary>Asks the store for relief.</summary>
        internal Action Relieve { get; } = relieve;

        /// <summary>Sets what the store uses.</summary>
        public void Set(MemoryUse use, long bytes)
        {
            Invariant.Check(bytes >= 0, $"A store was to use {bytes} bytes for {use}.");
            // Most steps change one or two uses, and all stores share the sums.
            if (_hasLeft || bytes == _used[(int)use])
                return;
            Interlocked.Add(ref account._used[(int)use], bytes - _used[(int)use]);
            _used[(int)use] = bytes;
        }

        /// <summary>What the other stores use.</summary>
        public long OthersUse(MemoryUse use) => Math.Max(0, account.UsedFor(use) - _used[(int)use]);

        /// <summary>Sets by how many bytes what the next checkpoint writes is more than the changed pages take: deltas become pages.</summary>
        public void SetFolds(long bytes)
        {
            if (_hasLeft || bytes == _foldBytes)
                return;
            Interlocked.Add(ref account._foldBytes, bytes - _foldBytes);
            _foldBytes = bytes;
        }

        /// <summary>Bytes that the other stores' next checkpoints write.</summary>
        public long OthersFileBytes => OthersUse(MemoryUse.ChangedPages) + Math.Max(0, Interlocked.Read(ref account._foldBytes) - _foldBytes);

        /// <summary>Sets what a checkpoint, and dropping what is only cached, would return, and has stores asked if memory is short.</summary>
        public void SetGain(long bytes)
        {
            Interlocked.Exchange(ref _gain, bytes);
            account.Look(isDue: false);
        }

        /// <summary>What was asked for has happened.</summary>
        public void Relieved()
        {
            lock (account._gate)
                (AskedAtLocked, OrderLocked) = (0, 0);
            account.Look(isDue: true);
        }

        /// <summary>Bytes of bodies that the store may keep for followers, or that may wait for its disk.</summary>
        /// <param name="most">The bound while there is plenty.</param>
        public long BodyBytesMax(long most) => account.IsJournalShort ? Math.Min(most, Math.Max(BodyBytesMin, account.FairPart)) : most;

        /// <summary>Bytes of pages that callers' snapshots of the store may hold: all together 3/16 of the budget, or each store its part of that.</summary>
        public long ReaderBytesMax => Math.Max(3 * account.FairPart / 2, (account.Budget / 16 * 3) - OthersUse(MemoryUse.ReaderPages));

        /// <summary>Bytes of pages that digests of the store may hold: all together a sixteenth of the budget, or each store its part of that.</summary>
        public long DigestBytesMax => Math.Max(account.FairPart / 2, (account.Budget / 16) - OthersUse(MemoryUse.DigestPages));

        /// <summary>The pages that the next step may make.</summary>
        public int PagesMax() => account._pace.PagesMax(account.Paced, Writers);

        /// <summary>Takes a turn for the next step, unless it has one. How long to wait before asking again; zero: the step may begin.</summary>
        public TimeSpan WaitForTurn()
        {
            var used = account.Paced;
            if (_turn.IsNone)
                _turn = account._pace.Enter(used, Writers);
            return account._pace.WaitFor(_turn, used);
        }

        /// <summary>A step has ended, and its turn with it.</summary>
        /// <param name="grown">Bytes that it took.</param>
        public void StepEnded(long grown)
        {
            account._pace.End(_turn, account.Paced, grown);
            _turn = default;
        }

        /// <summary>The store begins or ends a pause because of the node's memory.</summary>
        /// <param name="pause">How long the pause will be; zero at its end.</param>
        public void Hold(TimeSpan pause)
        {
            if (pause > TimeSpan.Zero != _isHeld)
                Interlocked.Add(ref account._held, _isHeld ? -1 : 1);
            _isHeld = pause > TimeSpan.Zero;
            Interlocked.Add(ref account._heldTicks, pause.Ticks);
        }

        /// <summary>The store's memory is returned.</summary>
        public void Dispose()
        {
            if (_hasLeft)
                return;
            foreach (var use in Enum.GetValues<MemoryUse>())
                Set(use, 0);
            SetFolds(0);
            _hasLeft = true;
            Hold(TimeSpan.Zero);
            account.Leave(this);
        }

        internal bool IsAwaitedLocked(long now)
        {
            Invariant.CheckHeld(account._gate);
            return AskedAtLocked != 0 && (account.Elapsed(AskedAtLocked, now) < AskAgainAfter || isUnderWay());
        }

        // The number of stores that pause, this one included.
        private int Writers => Volatile.Read(ref account._held) + (_isHeld ? 0 : 1);
    }

    // Bodies may take an eighth of the budget even while there is plenty.
    private bool IsJournalShort => IsShort || UsedFor(MemoryUse.Journal) > budget / 8;

    private TimeSpan Elapsed(long since, long now) => time.GetElapsedTime(since, now);
}
