using KvCluster.Storage.Context;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The memory account of a node, without stores: sums, who is asked for a checkpoint, and how fast memory may be taken.</summary>
public sealed class MemoryAccountTests
{
    private const long Budget = 64 << 20;
    private const long Enough = 8 << 20;

    private readonly ManualTime _time = new();

    /// <summary>Against a model: whatever stores do, in whatever order, the account is the sum of what its stores have set.</summary>
    [Fact]
    public void Account_OfRandomStores_IsTheSumOfTheirs()
    {
        var seed = int.TryParse(Environment.GetEnvironmentVariable("KV_SEED"), out var given) ? given : Environment.TickCount;
        var random = new Random(seed);
        var account = new MemoryAccount(Budget, _time);
        var model = new Dictionary<MemoryAccount.Share, long[]>();
        var uses = Enum.GetValues<MemoryUse>();
        for (var step = 0; step < 5_000; step++)
        {
            if (model.Count == 0 || random.Next(20) == 0)
                model.Add(account.Join(static () => { }), new long[uses.Length]);
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
                Assert.True(account.UsedFor(one) == model.Values.Sum(used => used[(int)one]), $"{one} after step {step} of KV_SEED={seed}");
        }
        foreach (var share in model.Keys)
            share.Dispose();
        Assert.Equal(0, account.Used);
    }

    [Fact]
    public void Stores_AreAsked_MostFirstAFewAtATimeAndOnlyAsLongAsNeeded()
    {
        var account = new MemoryAccount(Budget, _time);
        var asked = new List<int>();
        var shares = Enumerable.Range(0, 10).Select(index => account.Join(() => asked.Add(index))).ToArray();
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
        var share = account.Join(() => asked++);
        Hold(share, 40 << 20);
        Hold(share, 41 << 20);
        Assert.Equal(1, asked);
        _time.Advance(TimeSpan.FromSeconds(1));
        Hold(share, 42 << 20);
        Assert.Equal(2, asked);
    }

    [Fact]
    public void Pace_FromHalfOfTheBudget_SlowsSmoothlyAndNeverStops()
    {
        var account = new MemoryAccount(Budget, _time);
        var share = account.Join(static () => { });
        Hold(share, Budget / 2);
        Assert.Equal(int.MaxValue, share.PagesMax());
        Assert.Equal(TimeSpan.Zero, share.PauseAfter(1 << 20));
        var (pages, pause) = (int.MaxValue, TimeSpan.Zero);
        for (var used = (Budget / 2) + 1; used < 2 * Budget; used += Budget / 50)
        {
            Hold(share, used);
            _time.Advance(TimeSpan.FromSeconds(10));
            Assert.InRange(share.PagesMax(), GrowthPace.PagesLeast, pages);
            pages = share.PagesMax();
            var next = share.PauseAfter(GrowthPace.PagesLeast * Page.Bytes);
            Assert.InRange(next, pause, TimeSpan.FromSeconds(1));
            pause = next;
        }
        Assert.Equal(GrowthPace.PagesLeast, pages);
        Assert.True(account.HeldBack > TimeSpan.Zero);
    }

    /// <summary>Many writers at a pace that allows more than they free: what they take together stays below the bound.</summary>
    [Fact]
    public void Pace_SharedByManyStores_KeepsTheSumBelowTheBudget()
    {
        const int Stores = 300;
        var account = new MemoryAccount(Budget, _time);
        var shares = Enumerable.Range(0, Stores).Select(_ => account.Join(static () => { })).ToArray();
        var held = new long[Stores];
        var dueAt = new TimeSpan[Stores];
        var now = TimeSpan.Zero;
        // Each step may make a thousand pages. Nothing is returned for ten seconds.
        for (; now < TimeSpan.FromSeconds(10); now += TimeSpan.FromMilliseconds(5))
        {
            _time.Advance(TimeSpan.FromMilliseconds(5));
            for (var index = 0; index < Stores; index++)
            {
                if (dueAt[index] > now)
                    continue;
                var grown = Math.Min(20, shares[index].PagesMax()) * (long)Page.Bytes;
                held[index] += grown;
                Hold(shares[index], held[index]);
                dueAt[index] = now + shares[index].PauseAfter(grown);
            }
        }
        // In ten seconds without any relief each store was still granted its least.
        Assert.InRange(account.Used, Budget / 2, (Budget * 7 / 8) + (12L * Stores * GrowthPace.PagesLeast * Page.Bytes));
        Assert.All(held, static bytes => Assert.True(bytes > 0));
    }

    [Fact]
    public void JournalBodies_ThatAreOnlyKept_ShrinkToAFairPartWhenMemoryIsShort()
    {
        var account = new MemoryAccount(Budget, _time);
        var shares = Enumerable.Range(0, 4).Select(_ => account.Join(static () => { })).ToArray();
        Assert.Equal(16 << 20, shares[0].KeptJournalMax(16 << 20));
        shares[0].Set(MemoryUse.Journal, Budget / 4);
        Assert.Equal(Budget / 8 / 4, shares[1].KeptJournalMax(16 << 20));
        shares[0].Set(MemoryUse.Journal, 0);
        Assert.Equal(long.MaxValue, account.KeptIndexBytesMax);
        Hold(shares[0], Budget / 2);
        Assert.Equal((Budget / 8 / 4, Budget / 8 / 4), (shares[1].KeptJournalMax(16 << 20), account.KeptIndexBytesMax));
    }

    [Fact]
    public void AccountWithoutABudget_SlowsAndAsksNobody()
    {
        var account = new MemoryAccount(long.MaxValue, _time);
        var share = account.Join(static () => Assert.Fail("was asked"));
        Hold(share, 1L << 40);
        Assert.Equal((int.MaxValue, TimeSpan.Zero), (share.PagesMax(), share.PauseAfter(1L << 30)));
    }

    private static void Hold(MemoryAccount.Share share, long bytes)
    {
        share.Set(MemoryUse.ChangedPages, bytes);
        share.SetGain(bytes);
    }
}
