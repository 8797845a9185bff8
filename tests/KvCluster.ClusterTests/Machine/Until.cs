using System.Diagnostics;

namespace KvCluster.ClusterTests;

/// <summary>Waits for conditions; the limits are only there to end a test that has failed.</summary>
internal static class Until
{
    /// <summary>For whatever else waits, too: no test but those of failovers is about how long something takes.</summary>
    public static readonly TimeSpan Limit = TimeSpan.FromMinutes(3);

    public static Task TrueAsync(Func<bool> condition, string what, TimeSpan? limit = null) => TrueAsync(() => Task.FromResult(condition()), what, limit);

    public static Task TrueAsync(Func<Task<bool>> condition, string what, TimeSpan? limit = null) => TrueAsync(condition, () => what, limit);

    /// <param name="condition">What is waited for.</param>
    /// <param name="what">The same in words, made when it has failed.</param>
    /// <param name="limit">For how long.</param>
    public static async Task TrueAsync(Func<Task<bool>> condition, Func<string> what, TimeSpan? limit = null)
    {
        var started = Stopwatch.GetTimestamp();
        while (!await condition())
        {
            if (Stopwatch.GetElapsedTime(started) >= (limit ?? Limit))
                Assert.Fail($"still not: {what()}");
            await Task.Delay(25);
        }
    }
}
