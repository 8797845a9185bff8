using System.Diagnostics;

namespace KvCluster.Tests.Grpc;

/// <summary>Waits for what is to become true, with a limit that only a failure reaches, also where little of one core is left to the tests.</summary>
internal static class Eventually
{
    /// <summary>For whatever else waits: one limit for all, as no test is about how fast a machine is.</summary>
    public static readonly TimeSpan Limit = TimeSpan.FromMinutes(3);

    public static async Task TrueAsync(Func<bool> condition, string expectation)
    {
        var waited = Stopwatch.StartNew();
        while (!condition())
        {
            Assert.True(waited.Elapsed < Limit, $"Not within {Limit}: {expectation}.");
            await Task.Delay(5);
        }
    }

    /// <summary>
    /// For tests of what happens when a time is up: it must be short, as the test waits for its end, and yet long enough for all that comes before it.
    /// The attempt is given a time and says whether that was so; if not, the next one has twice as much.
    /// </summary>
    public static async Task LongEnoughAsync(TimeSpan first, Func<TimeSpan, Task<bool>> attempt)
    {
        for (var time = first; !await attempt(time); time *= 2)
            Assert.True(time < Limit, $"Not even {time} is long enough.");
    }
}
