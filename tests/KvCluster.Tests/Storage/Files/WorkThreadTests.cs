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

    [Fact]
    public void WakeUp_AfterItemsThatWerePostedQuietly_RunsThemAll()
    {
        using var work = new WorkThread("test", TimeProvider.System);
        for (var round = 0; round < 200; round++)
        {
            using var ran = new CountdownEvent(3);
            var item = new WorkAction(() => ran.Signal());
            for (var count = 0; count < ran.InitialCount; count++)
                work.PostQuietly(item);
            work.WakeUp();
            Assert.True(ran.Wait(Eventually.Limit), $"Round {round} did not run.");
        }
    }
}
