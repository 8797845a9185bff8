using KvCluster.Node.Hosting;

namespace KvCluster.Tests.Node;

/// <summary>Many timers over one of the system's.</summary>
public sealed class SharedTimersTests
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(30);

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
            Assert.True(await source.Task.WaitAsync(Limit) >= TimeSpan.FromMilliseconds(199 - index), $"timer {index}");
    }

    [Fact]
    public async Task Change_ToEarlierAndAgainAfterFiring_IsFollowed()
    {
        using var timers = new SharedTimers();
        using var fired = new SemaphoreSlim(0);
        await using var timer = timers.CreateTimer(_ => fired.Release(), null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan);
        for (var turn = 0; turn < 3; turn++)
        {
            timer.Change(TimeSpan.FromMilliseconds(1), Timeout.InfiniteTimeSpan);
            Assert.True(await fired.WaitAsync(Limit));
        }
    }

    [Fact]
    public async Task Dispose_OfATimer_KeepsItFromFiring()
    {
        using var timers = new SharedTimers();
        var (gone, later) = (0, new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously));
        var first = timers.CreateTimer(_ => gone++, null, TimeSpan.FromMilliseconds(50), Timeout.InfiniteTimeSpan);
        await using var second = timers.CreateTimer(_ => later.SetResult(), null, TimeSpan.FromMilliseconds(100), Timeout.InfiniteTimeSpan);
        await first.DisposeAsync();
        await later.Task.WaitAsync(Limit);
        Assert.Equal(0, gone);
    }
}
