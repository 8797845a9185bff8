namespace KvCluster.Storage.Context;

/// <summary>What stores use memory for.</summary>
internal enum MemoryUse
{
    /// <summary>Changed pages that the next checkpoint writes, or that readers still need.</summary>
    ChangedPages,

    /// <summary>Memory for pages that is not in use: kept for the next batches, or between pages in use.</summary>
    FreePages,

    /// <summary>Bodies of journal records, which wait for the disk or to be applied, or are kept for followers, and the index of all records.</summary>
    Journal,

    /// <summary>Requests that wait for the writer.</summary>
    Requests,
}

/// <summary>
/// The memory that all stores of a node use, and the budget that bounds it. A store joins with a <see cref="Share"/>, sets what it uses at the end of each
/// step, and asks how it must behave. From 3/8 of the budget on, the stores with most to gain are asked for a checkpoint, a few at a time, so that each is
/// done soon; bodies of the journal that are only kept for followers shrink to a fair part. From half of it on, writers are slowed, up to 7/8. The rest is
/// for steps under way, and for gaps between pages. Any thread.
/// </summary>
/// <param name="budget">Bytes; the greatest number if there is no bound.</param>
/// <param name="time">The clock of pauses and repetitions.</param>
internal sealed class MemoryAccount(long budget, TimeProvider time)
{
    /// <summary>Stores whose checkpoints are awaited at a time: two for each of a node's checkpoint threads. Many at once would all be done late.</summary>
    public const int AskedMax = 4;

    /// <summary>A store with less than this to gain is not asked.</summary>
    public const long GainBytesMin = 64 << 10;

    /// <summary>The journal bytes that each store may keep in memory however many there are: one frame to a follower.</summary>
    private const long KeptBytesLeast = 256 << 10;

    /// <summary>After this time a store that could not help is asked again: its disk is full, or what it holds is not committed.</summary>
    private static readonly TimeSpan AskAgainAfter = TimeSpan.FromMilliseconds(200);

    /// <summary>The least interval between two looks at all stores.</summary>
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(5);

    private readonly Lock _gate = new();
    private readonly HashSet<Share> _shares = [];
    private readonly long[] _used = new long[Enum.GetValues<MemoryUse>().Length];
    private readonly GrowthPace _pace = new(budget / 2, budget - (budget / 8), TimeSpan.FromSeconds(1), time);
    private int _held;
    private long _heldTicks;
    private long _lookAgainAt;

    /// <summary>The budget in bytes.</summary>
    public long Budget => budget;

    /// <summary>
    /// Bytes in use, as far as they slow writers. What is kept between pages does not count, because waiting for a checkpoint does not return it. Requests count
    /// for a quarter of the budget at most: slow writers fill the queues, which have bounds of their own, and would slow themselves further.
    /// </summary>
    public long Used => UsedFor(MemoryUse.ChangedPages) + UsedFor(MemoryUse.Journal) + Math.Min(UsedFor(MemoryUse.Requests), budget / 4);

    /// <summary>Whether caches are to shrink, and checkpoints are wanted.</summary>
    public bool IsShort => Used > Threshold;

    /// <summary>How long writers were held back because of the budget since the start, summed over all of them.</summary>
    public TimeSpan HeldBack => TimeSpan.FromTicks(Interlocked.Read(ref _heldTicks));

    private long Threshold => budget / 8 * 3;

    /// <summary>
    /// Bytes that a store's index may take for records which a checkpoint covers and which are only kept for followers. The bodies of such records are on the
    /// disk, but for records of 40 bytes the index, which takes more than that for each, outgrows the changed pages.
    /// </summary>
    public long KeptIndexBytesMax => IsShort ? budget / 8 / Math.Max(1, _shares.Count) : long.MaxValue;

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
    public Share Join(Action relieve)
    {
        var share = new Share(this, relieve);
        lock (_gate)
            _shares.Add(share);
        return share;
    }

    // Asks stores until what they are about to return suffices.
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
            for (; awaited < AskedMax && Used - coming > Threshold && MostLocked(now) is { } most; awaited++)
            {
                most.AskedAtLocked = now;
                coming += most.Gain;
                asked.Add(most);
            }
        }
        foreach (var share in asked)
            share.Relieve();
    }

    private Share? MostLocked(long now)
    {
        Invariant.CheckHeld(_gate);
        Share? most = null;
        foreach (var share in _shares)
        {
            if (share.Gain >= Math.Max(GainBytesMin, (most?.Gain ?? 0) + 1) && !share.IsAwaitedLocked(now))
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
    internal sealed class Share(MemoryAccount account, Action relieve) : IDisposable
    {
        private readonly long[] _used = new long[account._used.Length];
        private long _gain;
        private bool _isHeld;
        private bool _hasLeft;

        /// <summary>What a checkpoint, and dropping what is only cached, would return. Any thread.</summary>
        public long Gain => Interlocked.Read(ref _gain);

        /// <summary>When it was asked for relief; 0: it is not awaited. Under the account's lock.</summary>
        internal long AskedAtLocked { get; set; }

        /// <summary>Asks the store for relief.</summary>
        internal Action Relieve { get; } = relieve;

        /// <summary>Sets what the store uses.</summary>
        public void Set(MemoryUse use, long bytes)
        {
            Invariant.Check(bytes >= 0, $"A store was to use {bytes} bytes for {use}.");
            if (_hasLeft)
                return;
            Interlocked.Add(ref account._used[(int)use], bytes - _used[(int)use]);
            _used[(int)use] = bytes;
        }

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
                AskedAtLocked = 0;
            account.Look(isDue: true);
        }

        /// <summary>Bytes of the journal that the store may keep in memory beyond need.</summary>
        /// <param name="most">What it keeps while there is plenty.</param>
        public long KeptJournalMax(long most)
        {
            if (!account.IsShort && account.UsedFor(MemoryUse.Journal) <= account.Budget / 8)
                return most;
            return Math.Min(most, Math.Max(KeptBytesLeast, account.Budget / 8 / Math.Max(1, account._shares.Count)));
        }

        /// <summary>The pages that the next step may make.</summary>
        public int PagesMax() => account._pace.PagesMax(account.Used, Volatile.Read(ref account._held));

        /// <summary>How long to wait after a step that took this many bytes.</summary>
        public TimeSpan PauseAfter(long grown)
        {
            var pause = account._pace.PauseAfter(account.Used, grown);
            if (pause > TimeSpan.Zero != _isHeld)
                Interlocked.Add(ref account._held, _isHeld ? -1 : 1);
            _isHeld = pause > TimeSpan.Zero;
            if (_isHeld)
                Interlocked.Add(ref account._heldTicks, pause.Ticks);
            return pause;
        }

        /// <summary>The store's memory is returned.</summary>
        public void Dispose()
        {
            if (_hasLeft)
                return;
            foreach (var use in Enum.GetValues<MemoryUse>())
                Set(use, 0);
            _hasLeft = true;
            if (_isHeld)
                Interlocked.Decrement(ref account._held);
            account.Leave(this);
        }

        internal bool IsAwaitedLocked(long now)
        {
            Invariant.CheckHeld(account._gate);
            return AskedAtLocked != 0 && account.Elapsed(AskedAtLocked, now) < AskAgainAfter;
        }
    }

    private TimeSpan Elapsed(long since, long now) => time.GetElapsedTime(since, now);
}
