using KvCluster.ServiceDefaults.Memory;
using Xunit.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>What calls may hold in memory: the budget of a process and a stream's share of it.</summary>
public sealed class MemoryTests(ITestOutputHelper output)
{
    private const long Mebibyte = 1 << 20;

    [Fact]
    public void TryTake_BeyondThreeQuarters_AcceptsOnlySmallAmounts()
    {
        var budget = new ByteBudget(4 * Mebibyte);
        Assert.True(budget.TryTake(3 * Mebibyte, isSmall: false));
        Assert.False(budget.TryTake(1, isSmall: false));
        Assert.True(budget.TryTake(Mebibyte, isSmall: true));
        Assert.False(budget.TryTake(1, isSmall: true));
        Assert.Equal(4 * Mebibyte, budget.Taken);
        Assert.True(budget.IsShort);
        budget.GiveBack(4 * Mebibyte);
        Assert.Equal(0, budget.Taken);
    }

    [Fact]
    public void Share_AfterAnyUses_HoldsTheUsedBytesPlusOnePiece()
    {
        var random = Seeds.Next(output);
        var budget = new ByteBudget(64 * Mebibyte);
        var stream = new StreamBudget(budget);
        var used = new Queue<int>();
        for (var step = 0; step < 10_000; step++)
        {
            var bytes = random.Next(2) == 0 ? random.Next(2_000) : random.Next(1 << 20);
            if (random.Next(2) == 0)
            {
                if (stream.TryUse(bytes))
                    used.Enqueue(bytes);
            }
            else if (used.TryDequeue(out var freed))
            {
                stream.Free(freed);
            }
            Assert.Equal(used.Sum(one => (long)one), stream.Used);
            Assert.InRange(budget.Taken, stream.Used, stream.Used + (2 * ByteBudget.SmallBytes));
        }
        stream.Free(stream.Used);
        Assert.Equal(0, budget.Taken);
    }

    [Fact]
    public void Share_OfAFullBudget_StillTakesMandatoryBytes()
    {
        var budget = new ByteBudget(Mebibyte);
        budget.Take(Mebibyte);
        var stream = new StreamBudget(budget);
        Assert.False(stream.TryUse(100));
        stream.Use(100);
        Assert.Equal(Mebibyte + 100, budget.Taken);
        stream.Free(100);
        Assert.Equal(Mebibyte, budget.Taken);
    }

    [Fact]
    public async Task StalledWrite_CallerDoesNotRead_IsEndedOnlyWhenMemoryIsShort()
    {
        var budget = new ByteBudget(Mebibyte);
        Assert.True(await StalledWrite.EndsAsync(Task.CompletedTask, budget, default));
        await Assert.ThrowsAsync<IOException>(async () => await StalledWrite.EndsAsync(Task.FromException(new IOException()), budget, default));
        var write = new TaskCompletionSource();
        var stalled = StalledWrite.EndsAsync(write.Task, budget, default);
        await Task.Delay(50);
        Assert.False(stalled.IsCompleted);
        budget.Take(Mebibyte);
        Assert.False(await stalled);
    }

    [Fact]
    public async Task StalledWrite_AfterTheEndOfItsCall_IsACancellationAndNoMistake()
    {
        var budget = new ByteBudget(Mebibyte);
        using var call = new CancellationTokenSource();
        // What gRPC's server throws.
        var late = Task.FromException(new InvalidOperationException("Can't write the message because the request is complete."));
        await Assert.ThrowsAsync<InvalidOperationException>(async () => await StalledWrite.EndsAsync(late, budget, call.Token));
        await call.CancelAsync();
        await Assert.ThrowsAsync<OperationCanceledException>(async () => await StalledWrite.EndsAsync(late, budget, call.Token));
    }
}
