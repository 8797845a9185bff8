using KvCluster.Node.Runtime;

namespace KvCluster.Tests.Node;

/// <summary>Many timers over one system timer.</summary>
public sealed class SharedTimersTests
{
    [Fact]
    public async Task Timers_FireOnceEach_AndNotBeforeTheyAreDue()
    {
        using var timers = new SharedTimers();
        var fired = Enumerable.Range(0, 200).Select(_ => new TaskCompletionSource<TimeSpan>(TaskCreationOptions.RunContinuationsAsynchronously)).ToArray();
        var begun = timers.GetTimestamp();
        foreach (var (index, source) in fired.Index())
        {
            _ = timers.CreateTimer(_ => source.SetResult(timers.GetElapsedTime(begun)), null, TimeSpan.FromMilliseconds(200 - index), Timeout.InfiniteTimeSpan);
        }
        foreach (var (index, source) in fired.Index())
            Assert.True(await source.Task.WaitAsync(Eventually.Limit) >= TimeSpan.FromMilliseconds(199 - index), $"timer {index}");
    }

    // Timers fired on the thread pool. Under full load a leader's heartbeats waited there behind its callers for 693 ms, longer than the 600 ms after
    // which followers campaign.
    [Fact]
    public async Task Timers_FireOnAThreadThatCallersDoNotUse()
    {
        using var timers = new SharedTimers();
        var isOfPool = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var timer = timers.CreateTimer(_ => isOfPool.SetResult(Thread.CurrentThread.IsThreadPoolThread), null, TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan);
        Assert.False(await isOfPool.Task.WaitAsync(Eventually.Limit));
    }

    [Fact]
    public async Task Dispose_WithTimersThatAreDueLater_EndsItsThread()
    {
        var timers = new SharedTimers();
        var fired = 0;
        await using var timer = timers.CreateTimer(_ => fired++, null, TimeSpan.FromMilliseconds(20), Timeout.InfiniteTimeSpan);
        timers.Dispose();
        var atEnd = fired;
        await Task.Delay(50);
        Assert.Equal(atEnd, fired);
    }

    [Fact]
    public async Task Change_ToEarlierAndAgainAfterFiring_TakesEffect()
    {
        using var timers = new SharedTimers();
        using var fired = new SemaphoreSlim(0);
        await using var timer = timers.CreateTimer(_ => fired.Release(), null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan);
        for (var turn = 0; turn < 3; turn++)
        {
            timer.Change(TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan);
            Assert.True(await fired.WaitAsync(Eventually.Limit));
        }
    }

    [Fact]
    public async Task Dispose_OfATimer_KeepsItFromFiring()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(50), async time =>
        {
            using var timers = new SharedTimers();
            var (gone, later) = (0, new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously));
            var begun = timers.GetTimestamp();
            var first = timers.CreateTimer(_ => gone++, null, time, Timeout.InfiniteTimeSpan);
            await using var second = timers.CreateTimer(_ => later.SetResult(), null, time * 2, Timeout.InfiniteTimeSpan);
            await first.DisposeAsync();
            var wasInTime = timers.GetElapsedTime(begun) < time;
            await later.Task.WaitAsync(Eventually.Limit);
            Assert.True(gone == 0 || !wasInTime, "The timer fired after it was disposed.");
            return wasInTime;
        });
    }
}
