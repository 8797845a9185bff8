using KvCluster.Storage.Threads;

namespace KvCluster.Tests.Storage.Files;

/// <summary>Many timers over one system timer.</summary>
public sealed class SharedTimersTests
{
    [Fact]
    public async Task Timers_FireOnceEach_AndNotBeforeTheyAreDue()
    {
        using var timers = new SharedTimers(TimeProvider.System);
        var fired = Enumerable.Range(0, 200).Select(_ => new TaskCompletionSource<TimeSpan>(TaskCreationOptions.RunContinuationsAsynchronously)).ToArray();
        var begun = timers.GetTimestamp();
        foreach (var (index, source) in fired.Index())
        {
            _ = timers.CreateTimer(_ => source.SetResult(timers.GetElapsedTime(begun)), null, TimeSpan.FromMilliseconds(200 - index), Timeout.InfiniteTimeSpan);
        }
        foreach (var (index, source) in fired.Index())
            Assert.True(await source.Task.WaitAsync(Eventually.Limit) >= TimeSpan.FromMilliseconds(199 - index), $"timer {index}");
    }

    // Timers for the same moment were due microseconds apart, and woke the thread several times on an idle node.
    [Fact]
    public async Task Timers_MeantForTheSameMoment_FireTogether()
    {
        var clock = new SetClock { Microseconds = 1_000 };
        using var timers = new SharedTimers(clock);
        var fired = 0;
        var together = new TaskCompletionSource<int>(TaskCreationOptions.RunContinuationsAsynchronously);
        timers.Late = _ => together.TrySetResult(Volatile.Read(ref fired));
        await using var first = timers.CreateTimer(_ => Interlocked.Increment(ref fired), null, TimeSpan.FromMilliseconds(200), Timeout.InfiniteTimeSpan);
        clock.Microseconds = 1_500;
        await using var second = timers.CreateTimer(_ => Interlocked.Increment(ref fired), null, TimeSpan.FromMilliseconds(200), Timeout.InfiniteTimeSpan);
        clock.Microseconds = 201_200;
        await Task.Delay(TimeSpan.FromMilliseconds(400));
        Assert.Equal(0, Volatile.Read(ref fired));
        clock.Microseconds = 204_000;
        Assert.Equal(2, await together.Task.WaitAsync(Eventually.Limit));
    }

    // Timers fired on the thread pool. Under full load a leader's heartbeats waited there behind its callers for 693 ms, longer than the 600 ms after
    // which followers campaign.
    [Fact]
    public async Task Timers_FireOnAThreadThatCallersDoNotUse()
    {
        using var timers = new SharedTimers(TimeProvider.System);
        var isOfPool = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var timer = timers.CreateTimer(
            _ => isOfPool.SetResult(Thread.CurrentThread.IsThreadPoolThread), null, TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan);
        Assert.False(await isOfPool.Task.WaitAsync(Eventually.Limit));
    }

    [Fact]
    public async Task Dispose_WithTimersThatAreDueLater_EndsItsThread()
    {
        var timers = new SharedTimers(TimeProvider.System);
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
        using var timers = new SharedTimers(TimeProvider.System);
        using var fired = new SemaphoreSlim(0);
        await using var timer = timers.CreateTimer(_ => fired.Release(), null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan);
        for (var turn = 0; turn < 3; turn++)
        {
            timer.Change(TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan);
            Assert.True(await fired.WaitAsync(Eventually.Limit));
        }
    }

    // The timers of a closed store that nobody disposed of stayed with the node's thread, and the store with them.
    [Fact]
    public async Task Timer_ThatHasFired_IsNotKept()
    {
        using var timers = new SharedTimers(TimeProvider.System);
        var (state, fired) = Fire(timers);
        await fired.WaitAsync(Eventually.Limit);
        // The thread may still have the last timer that it ran, so that is another one.
        await Fire(timers).Fired.WaitAsync(Eventually.Limit);
        await Eventually.TrueAsync(
            () =>
            {
                GC.Collect();
                return !state.IsAlive;
            },
            "nothing refers to the state of a timer that has fired");
    }

    [Fact]
    public async Task Change_AfterDispose_SetsNothing()
    {
        using var timers = new SharedTimers(TimeProvider.System);
        var timer = timers.CreateTimer(_ => { }, null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        Assert.True(timer.Change(TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan));
        await timer.DisposeAsync();
        Assert.False(timer.Change(TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan));
    }

    [Fact]
    public async Task Dispose_OfATimer_KeepsItFromFiring()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(50), async time =>
        {
            using var timers = new SharedTimers(TimeProvider.System);
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

    private sealed class SetClock : TimeProvider
    {
        private long _microseconds;

        public long Microseconds
        {
            get => Volatile.Read(ref _microseconds);
            set => Volatile.Write(ref _microseconds, value);
        }

        public override long TimestampFrequency => 1_000_000;

        public override long GetTimestamp() => Microseconds;
    }

    // In a method of its own, so that no local variable of the test refers to the state.
    private static (WeakReference State, Task Fired) Fire(SharedTimers timers)
    {
        var fired = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var state = new object();
        _ = timers.CreateTimer(_ => fired.SetResult(), state, TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan);
        return (new WeakReference(state), fired.Task);
    }
}
