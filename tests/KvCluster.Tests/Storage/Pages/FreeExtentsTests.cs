using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The pages that a checkpoint takes: each once, of those that are free, and the file grows only when no free run is long enough.</summary>
public sealed class FreeExtentsTests
{
    private const int FilePages = 4_000;

    // More may be taken than was expected. What is free at the back of the file is kept until then, and must not be lost.
    [Theory]
    [InlineData(1)]
    [InlineData(40)]
    [InlineData(FilePages)]
    public void TryTake_SinglePages_FailsWhenAllAreTaken(long wanted) => Seeds.Run(3, random =>
    {
        var (free, left) = Free(random);
        var extents = new FreeExtents();
        extents.Begin(free, wanted);
        while (extents.TryTake(1, out var page))
            Assert.True(left.Remove(page), $"Page {page} is not free, or was taken twice.");
        Assert.Empty(left);
    });

    [Theory]
    [InlineData(1)]
    [InlineData(200)]
    [InlineData(FilePages)]
    public void TryTake_RunsOfAllLengths_FailsOnlyWhenNoneIsLongEnough(long wanted) => Seeds.Run(5, random =>
    {
        var (free, left) = Free(random);
        var extents = new FreeExtents();
        extents.Begin(free, wanted);
        var grown = FilePages + 1L;
        for (var step = 0; step < 2_000; step++)
        {
            var pages = random.Next(3) == 0 ? random.Next(2, 30) : 1;
            if (extents.TryTake(pages, out var first))
            {
                for (var page = first; page < first + pages; page++)
                    Assert.True(left.Remove(page), $"Page {page} is not free, or was taken twice.");
                continue;
            }
            Assert.True(Longest(left) < pages, $"No run of {pages} pages was found, but one of {Longest(left)} is free.");
            // As a file that grows.
            var added = pages + random.Next(20);
            extents.Add(new PageRun(grown, added));
            left.UnionWith(Enumerable.Range(0, added).Select(index => grown + index));
            // Never beside the last growth, or the two would be one run.
            grown += added + 1;
        }
        Assert.True(grown > FilePages + 1, "The file did not grow.");
    });

    /// <summary>Runs of free pages, of one page to a hundred, with used ones between them.</summary>
    private static (PageBitmap Free, SortedSet<long> Pages) Free(Random random)
    {
        var free = new PageBitmap();
        free.Reserve(FilePages);
        var pages = new SortedSet<long>();
        for (var page = 2L; page < FilePages - 100; page += random.Next(1, 40))
        {
            var count = random.Next(4) == 0 ? random.Next(1, 100) : random.Next(1, 4);
            free.Add(new PageRun(page, count));
            pages.UnionWith(Enumerable.Range(0, count).Select(index => page + index));
            page += count;
        }
        return (free, pages);
    }

    private static int Longest(SortedSet<long> pages)
    {
        var (longest, length, last) = (0, 0, -2L);
        foreach (var page in pages)
        {
            length = page == last + 1 ? length + 1 : 1;
            (longest, last) = (Math.Max(longest, length), page);
        }
        return longest;
    }
}
