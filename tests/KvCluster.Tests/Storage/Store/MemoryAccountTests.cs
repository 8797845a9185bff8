using KvCluster.Storage.Context;
using KvCluster.Storage.Pages;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The memory account of a node, without stores: sums, who is asked for a checkpoint, and how fast memory may be taken.</summary>
public sealed class MemoryAccountTests(ITestOutputHelper output)
{
    private const long Budget = 64 << 20;
    private const long Enough = 8 << 20;

    private readonly ManualTime _time = new();

    /// <summary>Against a model: whatever stores do, in whatever order, the account is the sum of what its stores have set.</summary>
    [Fact]
    public void Account_OfRandomStores_IsTheSumOfTheirs()
    {
        var random = Seeds.Next(output);
        var account = new MemoryAccount(Budget, _time);
        var model = new Dictionary<MemoryAccount.Share, long[]>();
        var uses = Enum.GetValues<MemoryUse>();
        for (var step = 0; step < 5_000; step++)
        {
            if (model.Count == 0 || random.Next(20) == 0)
                model.Add(Join(account), new long[uses.Length]);
            var share = model.Keys.ElementAt(random.Next(model.Count));
            var use = uses[random.Next(uses.Length)];
            if (random.Next(30) == 0)
            {
                share.Dispose();
                // A store that is gone counts nothing any more.
                share.Set(use, 77);
                model.Remove(share);
            }
            else
            {
                model[share][(int)use] = random.Next(1 << 20);
                share.Set(use, model[share][(int)use]);
                share.SetGain(random.Next(1 << 20));
            }
            foreach (var one in uses)
                Assert.True(account.UsedFor(one) == model.Values.Sum(used => used[(int)one]), $"{one} after step {step}");
        }
        foreach (var share in model.Keys)
            share.Dispose();
        Assert.Equal(0, account.Used);
    }

    /// <summary>The checkpoints of other stores write pages for deltas that take less memory.</summary>
    [Fact]
    public void OthersFileBytes_AreWhatTheirCheckpointsWrite()
    {
        var account = new MemoryAccount(Budget, _time);
        MemoryAccount.Share one = Join(account), other = Join(account);
        one.Set(MemoryUse.ChangedPages, 1_000);
        one.SetFolds(20_000);
        other.Set(MemoryUse.ChangedPages, 100);
        other.SetFolds(3_000);
        Assert.Equal(21_000, other.OthersFileBytes);
        Assert.Equal(3_100, one.OthersFileBytes);
        one.SetFolds(0);
        Assert.Equal(1_000, other.OthersFileBytes);
        other.Dispose();
        other.SetFolds(5);
        Assert.Equal(0, one.OthersFileBytes);
    }

    [Fact]
    public void Stores_AreAsked_MostFirstAFewAtATimeAndOnlyAsLongAsNeeded()
    {
        var account = new MemoryAccount(Budget, _time);
        var asked = new List<int>();
        var shares = Enumerable.Range(0, 10).Select(index => account.Join(() => asked.Add(index), static () => false)).ToArray();
        for (var index = 0; index < shares.Length; index++)
            Hold(shares[index], (index + 1) << 18);
        Assert.Empty(asked);
        Hold(shares[9], 40 << 20);
        // One suffices to return to 3/8 of the budget.
        Assert.Equal([9], asked);
        Hold(shares[9], 0);
        shares[9].Relieved();
        Assert.Equal([9], asked);

        // The gain of each is known, but memory is not short before the last.
        asked.Clear();
        for (var index = 0; index < 10; index++)
            shares[index].SetGain(Enough + index);
        for (var index = 0; index < 10; index++)
            shares[index].Set(MemoryUse.ChangedPages, Enough + index);
        _time.Advance(TimeSpan.FromMilliseconds(10));
        shares[0].SetGain(Enough);
        Assert.Equal([9, 8, 7, 6], asked);
        // The next one is asked as soon as one is done.
        Hold(shares[8], 0);
        Assert.Equal([9, 8, 7, 6], asked);
        shares[8].Relieved();
        Assert.Equal([9, 8, 7, 6, 5], asked);
    }

    [Fact]
    public void StoreThatCannotHelp_IsAskedAgainLater_AndKeepsNoOthersFromBeingAsked()
    {
        var account = new MemoryAccount(Budget, _time);
        var asked = 0;
        var share = account.Join(() => asked++, static () => false);
        Hold(share, 40 << 20);
        Hold(share, 41 << 20);
        Assert.Equal(1, asked);
        _time.Advance(TimeSpan.FromSeconds(1));
        Hold(share, 42 << 20);
        Assert.Equal(2, asked);
    }

    // The one with most to gain was asked again each time, although it could return nothing, and the others held what they had.
    [Fact]
    public void StoreThatWasAskedInVain_IsAskedAfterAllOthers()
    {
        var account = new MemoryAccount(Budget, _time);
        var asked = new List<int>();
        var shares = Enumerable.Range(0, 10).Select(index => account.Join(() => asked.Add(index), static () => false)).ToArray();
        for (var index = 1; index < 10; index++)
            shares[index].SetGain((1 << 20) + index);
        shares[0].SetGain(8 << 20);
        shares[0].Set(MemoryUse.ChangedPages, Budget);
        for (var look = 0; look < 3; look++)
        {
            shares[1].SetGain((1 << 20) + 1);
            _time.Advance(TimeSpan.FromSeconds(1));
        }
        Assert.Equal([0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 9], asked);
        shares[0].Relieved();
        Assert.Equal(0, asked[12]);
    }

    // Its checkpoint took longer than the time after which others are asked, so all checkpoints of the node were written at once, and each was done late.
    [Fact]
    public void StoreWhoseCheckpointIsBeingWritten_IsAwaitedHoweverLongItTakes()
    {
        var account = new MemoryAccount(Budget, _time);
        var (asked, isUnderWay) = (0, true);
        var share = account.Join(() => asked++, () => isUnderWay);
        Hold(share, 40 << 20);
        _time.Advance(TimeSpan.FromMinutes(1));
        Hold(share, 40 << 20);
        Assert.Equal(1, asked);
        isUnderWay = false;
        _time.Advance(TimeSpan.FromSeconds(1));
        Hold(share, 40 << 20);
        Assert.Equal(2, asked);
    }

    [Fact]
    public void Pace_FromHalfOfTheBudget_SlowsSmoothlyAndNeverStops()
    {
        var (pages, pause) = (int.MaxValue, TimeSpan.Zero);
        for (var used = Budget / 2; used < 2 * Budget; used += Budget / 50)
        {
            var account = new MemoryAccount(Budget, _time);
            var share = Join(account);
            Hold(share, used);
            Assert.Equal(TimeSpan.Zero, share.WaitForTurn());
            Assert.Equal(used == Budget / 2, share.PagesMax() == int.MaxValue);
            Assert.InRange(share.PagesMax(), GrowthPace.PagesMin, pages);
            pages = share.PagesMax();
            var next = PauseAfter(share, 1 << 20);
            Assert.InRange(next, pause, TimeSpan.FromSeconds(1));
            Assert.Equal(used == Budget / 2, next == TimeSpan.Zero);
            pause = next;
            // Until all is paid for, which takes longer than one pause when little is left.
            _time.Advance(TimeSpan.FromSeconds(20));
            Assert.Equal(TimeSpan.Zero, share.WaitForTurn());
        }
        Assert.Equal(GrowthPace.PagesMin, pages);
    }

    /// <summary>
    /// Many writers at a pace that allows more than they free: what they take together stays below the bound, also if their steps take more than their turns,
    /// as those of followers do. What a step cost beyond a pause of a second was forgiven once, and 300 stores took 19 MiB a second however little was left.
    /// </summary>
    [Theory]
    [InlineData(1)]
    [InlineData(8)]
    public void Pace_SharedByManyStores_KeepsTheSumBelowTheBudget(int turnsPerStep)
    {
        const int Stores = 300;
        var account = new MemoryAccount(Budget, _time);
        var shares = Enumerable.Range(0, Stores).Select(_ => Join(account)).ToArray();
        var held = new long[Stores];
        var dueAt = new TimeSpan[Stores];
        var now = TimeSpan.Zero;
        // Nothing is returned for ten seconds.
        for (; now < TimeSpan.FromSeconds(10); now += TimeSpan.FromMilliseconds(5))
        {
            _time.Advance(TimeSpan.FromMilliseconds(5));
            for (var index = 0; index < Stores; index++)
            {
                if (dueAt[index] > now)
                    continue;
                if (shares[index].WaitForTurn() is var pause && pause == TimeSpan.Zero)
                {
                    var grown = Math.Min(20, shares[index].PagesMax()) * (long)Page.Bytes * turnsPerStep;
                    held[index] += grown;
                    Hold(shares[index], held[index]);
                    shares[index].StepEnded(grown);
                    pause = shares[index].WaitForTurn();
                }
                shares[index].Hold(pause);
                dueAt[index] = now + pause;
            }
        }
        Assert.InRange(account.Used, Budget / 2, Budget);
        Assert.True(account.HeldBack > TimeSpan.Zero);
    }

    /// <summary>A long pause ends early when memory was returned, and the store that is behind in the order is served in its turn.</summary>
    [Fact]
    public void Turn_WhenMemoryIsReturned_HasCome()
    {
        var account = new MemoryAccount(Budget, _time);
        var (greedy, other) = (Join(account), Join(account));
        Hold(greedy, Budget * 7 / 8);
        Assert.Equal(TimeSpan.Zero, greedy.WaitForTurn());
        greedy.StepEnded(32 << 20);
        Assert.True(other.WaitForTurn() > TimeSpan.Zero);
        _time.Advance(TimeSpan.FromSeconds(30));
        Assert.True(other.WaitForTurn() > TimeSpan.Zero);
        Hold(greedy, Budget / 4);
        Assert.Equal(TimeSpan.Zero, other.WaitForTurn());
    }

    // A store that was slowed once and then got nothing to do counted as a writer for ever, and all others took smaller steps because of it.
    [Fact]
    public void StoreWhosePauseIsOver_SharesTheRateNoLonger()
    {
        var account = new MemoryAccount(Budget, _time);
        var (idle, busy) = (Join(account), Join(account));
        Hold(busy, Budget * 5 / 8);
        var alone = busy.PagesMax();
        idle.Hold(TimeSpan.FromSeconds(1));
        Assert.InRange(busy.PagesMax(), GrowthPace.PagesMin, (alone / 2) + 1);
        idle.Hold(TimeSpan.Zero);
        Assert.Equal(alone, busy.PagesMax());
        idle.Hold(TimeSpan.FromSeconds(1));
        idle.Dispose();
        Assert.Equal(alone, busy.PagesMax());
    }

    [Fact]
    public void JournalBodies_ThatAreOnlyKept_ShrinkToAFairPartWhenMemoryIsShort()
    {
        var account = new MemoryAccount(Budget, _time);
        var shares = Enumerable.Range(0, 4).Select(_ => Join(account)).ToArray();
        Assert.Equal(16 << 20, shares[0].BodyBytesMax(16 << 20));
        shares[0].Set(MemoryUse.Journal, Budget / 4);
        Assert.Equal(Budget / 8 / 4, shares[1].BodyBytesMax(16 << 20));
        shares[0].Set(MemoryUse.Journal, 0);
        Assert.Equal(long.MaxValue, account.KeptIndexBytesMax);
        Hold(shares[0], Budget / 2);
        Assert.Equal((Budget / 8 / 4, Budget / 8 / 4), (shares[1].BodyBytesMax(16 << 20), account.KeptIndexBytesMax));
    }

    // Ten thousand stores left three kilobytes of index to each, and a follower that was away for a moment needed a snapshot.
    [Fact]
    public void JournalOfManyStores_KeepsAFewRecordsOfEach()
    {
        var account = new MemoryAccount(Budget, _time);
        var shares = Enumerable.Range(0, 10_000).Select(_ => Join(account)).ToArray();
        Hold(shares[0], Budget / 2);
        Assert.InRange(account.KeptIndexBytesMax, 16 << 10, 64 << 10);
        Assert.InRange(shares[1].BodyBytesMax(16 << 20), 16 << 10, 256 << 10);
    }

    [Fact]
    public void Requests_OfAllStores_TakeAQuarterOfTheBudgetAndAFewOfEach()
    {
        var account = new MemoryAccount(Budget, _time);
        Assert.True(account.MayWait(Budget, 0));
        account.RequestsChanged(0, Budget / 4);
        Assert.False(account.MayWait(1 << 20, 0));
        Assert.True(account.MayWait(1 << 10, 0));
        Assert.False(account.MayWait(1 << 10, 64 << 10));
        account.RequestsChanged(Budget / 4, Budget / 8);
        Assert.True(account.MayWait(1 << 20, Budget / 8));
        Assert.False(account.MayWait((Budget / 8) + 1, 0));
        account.RequestsChanged(Budget / 8, 0);
        Assert.Equal(0, account.Used);
    }

    /// <summary>Whatever the sizes, and whoever tells first, the count returns to zero with the last request.</summary>
    [Fact]
    public void Requests_ComingAndGoing_LeaveNothing()
    {
        var account = new MemoryAccount(Budget, _time);
        var bytes = 0L;
        Parallel.For(0, 4, worker =>
        {
            var random = new Random(worker);
            for (var times = 0; times < 10_000; times++)
            {
                var size = random.Next(1 << 17);
                Add(size);
                Add(-size);
            }
        });
        Assert.Equal((0, 0), (bytes, account.UsedFor(MemoryUse.Requests)));

        void Add(long change)
        {
            var after = Interlocked.Add(ref bytes, change);
            account.RequestsChanged(after - change, after);
        }
    }

    [Fact]
    public void AccountWithoutABudget_SlowsAndAsksNobody()
    {
        var account = new MemoryAccount(long.MaxValue, _time);
        var share = account.Join(static () => Assert.Fail("was asked"), static () => false);
        Hold(share, 1L << 40);
        Assert.Equal((int.MaxValue, TimeSpan.Zero), (share.PagesMax(), PauseAfter(share, 1L << 30)));
    }

    private static MemoryAccount.Share Join(MemoryAccount account) => account.Join(static () => { }, static () => false);

    private static TimeSpan PauseAfter(MemoryAccount.Share share, long grown)
    {
        share.StepEnded(grown);
        return share.WaitForTurn();
    }

    private static void Hold(MemoryAccount.Share share, long bytes)
    {
        share.Set(MemoryUse.ChangedPages, bytes);
        share.SetGain(bytes);
    }
}
