using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The memory of changed pages: what is free beyond a bound goes back to the system a little at a time, because the writer waits for that.</summary>
public sealed unsafe class ScratchPoolTests
{
    private const int SlabPages = 128;
    private const int StepPages = 64;
    private const long Mebibyte = 1 << 20;

    /// <summary>All slabs became empty with the last few pages, and went back to the system in one step.</summary>
    [Fact]
    public void Return_OfPagesInAnotherOrderThanTheyWereTakenIn_GivesBackAMebibyteInAStep()
    {
        const int slabs = 12;
        using var pool = new ScratchPool(2 * Mebibyte);
        var taken = Rent(pool, slabs * SlabPages);
        var reserved = pool.ReservedBytes;
        Assert.Equal(slabs * Mebibyte, reserved);
        for (var page = 0; page < taken.Length; page++)
        {
            pool.Return((byte*)taken[(page % slabs * SlabPages) + (page / slabs)]);
            if (page % StepPages == StepPages - 1)
                reserved = Step(pool, reserved);
        }
        Assert.True(pool.HasSurplus, $"{pool.ReservedBytes} bytes are left when the last page is returned.");
        while (pool.HasSurplus)
            reserved = Step(pool, reserved);
        Assert.Equal(2 * Mebibyte, reserved);
    }

    [Fact]
    public void Rent_WhileFreeMemoryWaitsToBeGivenBack_TakesThat()
    {
        using var pool = new ScratchPool(0);
        var taken = Rent(pool, 4 * SlabPages);
        var reserved = pool.ReservedBytes;
        foreach (var page in taken)
            pool.Return((byte*)page);
        Assert.True(pool.HasSurplus, "The memory was given back at once.");
        Rent(pool, 4 * SlabPages);
        Assert.False(pool.HasSurplus, "There is more memory than before.");
        Assert.Equal(reserved, pool.ReservedBytes);
    }

    /// <summary>Each slab that becomes empty leaves less for runs, of which as much was given back in the same step.</summary>
    [Fact]
    public void Return_OfPagesWhileRunsAreKept_GivesThoseBackInSteps()
    {
        const int slabs = 6;
        using var pool = new ScratchPool(slabs * Mebibyte);
        var taken = Rent(pool, slabs * SlabPages);
        var runs = new nint[slabs];
        for (var run = 0; run < slabs; run++)
            runs[run] = (nint)RentRun(pool, SlabPages);
        foreach (var run in runs)
            pool.Return((byte*)run);
        pool.GiveBackSome();
        var reserved = pool.ReservedBytes;
        Assert.Equal(2 * slabs * Mebibyte, reserved);
        for (var page = 0; page < taken.Length; page++)
        {
            pool.Return((byte*)taken[(page % slabs * SlabPages) + (page / slabs)]);
            if (page % StepPages == StepPages - 1)
                reserved = Step(pool, reserved);
        }
        while (pool.HasSurplus)
            reserved = Step(pool, reserved);
        Assert.Equal(slabs * Mebibyte, reserved);
    }

    /// <summary>What the memory of a run has beyond it is not free: it cannot be returned before the run.</summary>
    [Fact]
    public void Rent_OfARunInLongerMemory_HasAHoleUntilItIsReturned()
    {
        using var pool = new ScratchPool(4 * Mebibyte);
        pool.Return(RentRun(pool, 100));
        var run = RentRun(pool, 95);
        Assert.Equal((5L * Page.Bytes, 100L * Page.Bytes), (pool.HoleBytes, pool.ReservedBytes));
        pool.Return(run);
        Assert.Equal(0, pool.HoleBytes);
    }

    private static byte* RentRun(ScratchPool pool, int pages)
    {
        var memory = pool.Rent(pages);
        Page.Format(memory, PageType.Overflow, []);
        Page.ValueLength(memory) = (uint)((pages * Page.Bytes) - Page.HeaderBytes);
        return memory;
    }

    private static long Step(ScratchPool pool, long reserved)
    {
        pool.GiveBackSome();
        Assert.InRange(reserved - pool.ReservedBytes, 0, Mebibyte);
        return pool.ReservedBytes;
    }

    private static nint[] Rent(ScratchPool pool, int pages)
    {
        var taken = new nint[pages];
        for (var index = 0; index < pages; index++)
        {
            var page = pool.Rent(1);
            Page.Format(page, PageType.Leaf, []);
            taken[index] = (nint)page;
        }
        return taken;
    }
}
