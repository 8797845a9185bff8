using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>
/// A caller with short deadlines left calls behind that waited for their shard. Kestrel counted their streams, and closed the connection with everybody's
/// calls.
/// </summary>
public sealed class AbandonedWorkTests
{
    [Fact]
    public async Task CallerThatGoes_EndsItsCall_AndTheWorkIsCountedUntilItEnds()
    {
        var (budget, work) = (new ByteBudget(1 << 20), new TaskCompletionSource());
        var abandoned = new AbandonedWork(budget);
        using var caller = new CancellationTokenSource();
        var ending = abandoned.EndsFirstAsync(work.Task, caller.Token).AsTask();
        Assert.False(ending.IsCompleted);
        await caller.CancelAsync();
        Assert.False(await ending.WaitAsync(Eventually.Limit));
        Assert.Equal(1, abandoned.Count);
        Assert.NotEqual(0, budget.Taken);
        work.SetException(new InvalidOperationException("The work failed."));
        await Eventually.TrueAsync(() => abandoned.Count == 0 && budget.Taken == 0, "the work is not counted any more");
    }

    [Fact]
    public async Task WorkThatEndsFirst_IsNotAbandoned()
    {
        var (budget, work) = (new ByteBudget(1 << 20), new TaskCompletionSource());
        var abandoned = new AbandonedWork(budget);
        using var caller = new CancellationTokenSource();
        var ending = abandoned.EndsFirstAsync(work.Task, caller.Token).AsTask();
        work.SetResult();
        Assert.True(await ending.WaitAsync(Eventually.Limit));
        Assert.Equal((0, 0L), (abandoned.Count, budget.Taken));
    }

    /// <summary>Otherwise a caller that only begins changes and cancels them would have any number of them in a shard that stands still.</summary>
    [Fact]
    public async Task WithoutRoomInTheBudget_TheCallKeepsItsStreamUntilTheWorkHasEnded()
    {
        var (budget, work) = (new ByteBudget(64 << 10), new TaskCompletionSource());
        var abandoned = new AbandonedWork(budget);
        using var caller = new CancellationTokenSource();
        await caller.CancelAsync();
        var left = 0;
        Task<bool> last;
        while ((last = abandoned.EndsFirstAsync(work.Task, caller.Token).AsTask()).IsCompleted)
            left++;
        Assert.InRange(left, 1, 64);
        Assert.Equal(left, abandoned.Count);
        work.SetResult();
        Assert.True(await last.WaitAsync(Eventually.Limit));
        await Eventually.TrueAsync(() => budget.Taken == 0, "the budget is free again");
    }
}
