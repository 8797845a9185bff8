using System.Threading.Channels;
using KvCluster.Node.Runtime;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Loops whose work or pause throws.</summary>
public sealed class BackgroundLoopTests
{
    /// <summary>An exception from the function that computes the next pause ended the loop silently.</summary>
    [Fact]
    public async Task Loop_TurnAndPauseThrow_CountsThemAndContinues()
    {
        var before = LoopFailures.Total;
        var turns = new SemaphoreSlim(0);
        await using var loop = new BackgroundLoop(
            "a loop",
            _ =>
            {
                turns.Release();
                throw new InvalidCastException("a bug of the turn");
            },
            () => throw new InvalidCastException("a bug of the pause"),
            TimeProvider.System,
            NullLogger.Instance);
        Assert.True(await turns.WaitAsync(Eventually.Limit));
        Assert.True(await turns.WaitAsync(Eventually.Limit));
        Assert.InRange(LoopFailures.Total - before, 2, long.MaxValue);
    }

    /// <summary>The thread of the replicas' timers, on which heartbeats depend, would have taken the turn whose pause it ended.</summary>
    [Fact]
    public async Task Loop_PausesByTimersWithAThreadOfTheirOwn_TakesItsTurnsOnThePool()
    {
        using var timers = new SharedTimers(TimeProvider.System);
        var turns = Channel.CreateUnbounded<bool>();
        await using var loop = new BackgroundLoop(
            "a loop",
            _ =>
            {
                turns.Writer.TryWrite(Thread.CurrentThread.IsThreadPoolThread);
                return Task.CompletedTask;
            },
            static () => TimeSpan.FromMilliseconds(1),
            timers,
            NullLogger.Instance);
        using var limit = new CancellationTokenSource(Eventually.Limit);
        for (var turn = 0; turn < 3; turn++)
            Assert.True(await turns.Reader.ReadAsync(limit.Token));
    }
}
