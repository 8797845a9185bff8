using KvCluster.Node.Runtime;
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
            NullLogger.Instance);
        Assert.True(await turns.WaitAsync(Eventually.Limit));
        Assert.True(await turns.WaitAsync(Eventually.Limit));
        Assert.InRange(LoopFailures.Total - before, 2, long.MaxValue);
    }
}
