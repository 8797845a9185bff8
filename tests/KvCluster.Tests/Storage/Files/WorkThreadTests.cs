using KvCluster.Storage.Threads;

namespace KvCluster.Tests.Storage.Files;

public sealed class WorkThreadTests
{
    [Fact]
    public void Post_FromManyThreads_RunsAllInEachPostersOrderOnOneThread()
    {
        const int PosterCount = 4, ItemCount = 20_000;
        var seen = new int[PosterCount];
        var outOfOrder = 0;
        var threads = new HashSet<int>();
        var work = new WorkThread("test", TimeProvider.System);
        var posters = Enumerable.Range(0, PosterCount).Select(poster => new Thread(() =>
        {
            for (var index = 0; index < ItemCount; index++)
            {
                var expected = index;
                work.Post(new WorkAction(() =>
                {
                    threads.Add(Environment.CurrentManagedThreadId);
                    if (seen[poster]++ != expected)
                        outOfOrder++;
                }));
                // From time to time the thread finds its queue empty and parks.
                if (index % 1000 == 0)
                    Thread.Yield();
            }
        })).ToArray();
        foreach (var poster in posters)
            poster.Start();
        foreach (var poster in posters)
            poster.Join();
        work.Dispose();
        Assert.Equal(Enumerable.Repeat(ItemCount, PosterCount), seen);
        Assert.Equal((0, 1), (outOfOrder, threads.Count));
    }

    [Fact]
    public void IsBehind_ManyItemsWait_UntilFewDo()
    {
        using var release = new ManualResetEventSlim();
        var seen = new List<bool>();
        using (var work = new WorkThread("test", TimeProvider.System))
        {
            work.Post(new WorkAction(release.Wait));
            Assert.False(work.IsBehind);
            // The first of them sees one less than were posted.
            for (var item = 0; item < WorkThread.BehindItems + 2; item++)
                work.Post(new WorkAction(() => seen.Add(work.IsBehind)));
            release.Set();
        }
        // Dispose posts one item more, perhaps before the first one is run.
        Assert.True(seen[0]);
        Assert.False(seen[^1]);
    }

    [Fact]
    public void Post_ToAParkedThread_WakesIt()
    {
        using var work = new WorkThread("test", TimeProvider.System);
        for (var round = 0; round < 200; round++)
        {
            using var ran = new ManualResetEventSlim();
            work.Post(new WorkAction(ran.Set));
            Assert.True(ran.Wait(Eventually.Limit), $"Round {round} did not run.");
        }
    }
}
