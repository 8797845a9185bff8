using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Compares the bitmap with an array of flags, and the extents with the pages that they were given.</summary>
public sealed class PageBitmapTests
{
    private const int Pages = 20_000;

    [Fact]
    public void RandomChanges_MatchTheModel() => Seeds.Run(3, random =>
    {
        var bitmap = new PageBitmap();
        bitmap.Reserve(Pages);
        var model = new bool[Pages];
        for (var step = 0; step < 300; step++)
        {
            var first = random.Next(Pages);
            var run = new PageRun(first, random.Next(random.Next(4) == 0 ? Pages - first : Math.Min(200, Pages - first)) + 1);
            var adds = random.Next(2) == 0;
            if (adds)
                bitmap.Add(run);
            else
                bitmap.Remove(run);
            model.AsSpan((int)run.First, (int)run.Count).Fill(adds);
        }
        Assert.Equal(model.Count(flag => flag), bitmap.Count);
        Assert.Equal(RunsOf(model, 1), bitmap.Runs());
        Assert.Equal(RunsOf(model, 128), bitmap.Runs(128));
        for (var step = 0; step < 100; step++)
        {
            var first = random.Next(Pages);
            var run = new PageRun(first, random.Next(Pages - first) + 1);
            Assert.Equal(model.AsSpan((int)run.First, (int)run.Count).Count(true), bitmap.CountIn(run));
            Assert.Equal(model[first], bitmap.Has(first));
            Assert.Equal(first - Array.FindLastIndex(model, first, first + 1, flag => !flag), bitmap.CountBefore(first + 1));
        }
        var copy = new PageBitmap();
        copy.CopyFrom(bitmap);
        Assert.Equal(bitmap.Runs(), copy.Runs());
    });

    /// <summary>Every page is given out once, runs in one piece, and while a run fits anywhere it is found.</summary>
    [Fact]
    public void Extents_RandomTakes_GiveEachPageOnce() => Seeds.Run(5, random =>
    {
        var bitmap = new PageBitmap();
        bitmap.Reserve(Pages);
        for (var page = 0; page < Pages; page += random.Next(1, 80))
            bitmap.Add(new PageRun(page, Math.Min(random.Next(1, 60), Pages - page)));
        var extents = new FreeExtents();
        extents.Begin(bitmap, random.Next(100));
        while (bitmap.Count > 0)
        {
            var pages = random.Next(3) == 0 ? random.Next(2, 20) : 1;
            var longest = bitmap.Runs().Max(run => run.Count);
            if (!extents.TryTake(pages, out var first))
            {
                Assert.True(longest < pages, $"{pages} pages were not found, but there are {longest}.");
                continue;
            }
            Assert.Equal(pages, bitmap.CountIn(new PageRun(first, pages)));
            bitmap.Remove(new PageRun(first, pages));
        }
        Assert.False(extents.TryTake(1, out _));
    });

    [Fact]
    public void Extents_SinglePages_ComeFromTheSmallestFragmentsAndRunsFromTheLongest()
    {
        var bitmap = new PageBitmap();
        bitmap.Reserve(1000);
        foreach (var run in (PageRun[])[new(10, 100), new(200, 1), new(300, 5), new(400, 1), new(500, 40)])
            bitmap.Add(run);
        var extents = new FreeExtents();
        extents.Begin(bitmap, 1_000);
        Assert.Equal([200, 10, 400, 40, 300, 301], ((int[])[1, 30, 1, 50, 1, 1]).Select(pages => extents.TryTake(pages, out var first) ? first : -1));
        Assert.Equal([500, 90], ((int[])[25, 20]).Select(pages => extents.TryTake(pages, out var first) ? first : -1));
    }

    private static List<PageRun> RunsOf(bool[] pages, int countMin)
    {
        var runs = new List<PageRun>();
        for (var first = 0; first < pages.Length;)
        {
            var count = 0;
            while (first + count < pages.Length && pages[first + count])
                count++;
            if (count > 0 && count >= countMin)
                runs.Add(new PageRun(first, count));
            first += count + 1;
        }
        return runs;
    }
}
