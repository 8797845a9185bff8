using System.Diagnostics;

namespace KvCluster.Tests.Grpc;

/// <summary>Waits for a condition, with a limit that only a failure reaches, even on a machine with little processor time.</summary>
internal static class Eventually
{
    /// <summary>The one limit for all other waits, because no test is about the speed of a machine.</summary>
    public static readonly TimeSpan Limit = TimeSpan.FromMinutes(3);

    public static async Task TrueAsync(Func<bool> condition, string expectation)
    {
        var waited = Stopwatch.StartNew();
        while (!condition())
        {
            Assert.True(waited.Elapsed < Limit, $"Not true within {Limit}: {expectation}.");
            await Task.Delay(5);
        }
    }

    /// <summary>
    /// For tests of what happens at a deadline. It must be short, because the test waits for it, and yet long enough for everything before it. The
    /// attempt is given a time and returns whether it was long enough. If not, the next attempt has twice as much.
    /// </summary>
    public static async Task LongEnoughAsync(TimeSpan first, Func<TimeSpan, Task<bool>> attempt)
    {
        for (var time = first; !await attempt(time); time *= 2)
            Assert.True(time < Limit, $"Even {time} was not long enough.");
    }
}
