using System.Diagnostics;

namespace KvCluster.Shared;

/// <summary>Waits for a condition, with a limit that only a failure reaches, even on a machine with little processor time.</summary>
internal static partial class Eventually
{
    /// <summary>The one limit of calls and of single waits, because no test but those of failovers is about the speed of a machine.</summary>
    public static readonly TimeSpan Limit = TimeSpan.FromMinutes(3);

    /// <summary>For a condition, which may take some calls.</summary>
    private static readonly TimeSpan LongestWait = 3 * Limit;

    private static readonly TimeSpan FirstPause = TimeSpan.FromMilliseconds(5);
    private static readonly TimeSpan LongestPause = TimeSpan.FromMilliseconds(100);

    public static Task TrueAsync(Func<bool> condition, string expectation, TimeSpan? limit = null) =>
        TrueAsync(() => Task.FromResult(condition()), expectation, limit);

    public static Task TrueAsync(Func<Task<bool>> condition, string expectation, TimeSpan? limit = null) => TrueAsync(condition, () => expectation, limit);

    /// <param name="condition">The condition.</param>
    /// <param name="expectation">Describes the condition. Called only when the wait has failed.</param>
    /// <param name="limit">The longest wait; null: three times <see cref="Limit"/>.</param>
    public static async Task TrueAsync(Func<Task<bool>> condition, Func<string> expectation, TimeSpan? limit = null)
    {
        var (started, most, pause) = (Stopwatch.GetTimestamp(), limit ?? LongestWait, FirstPause);
        while (!await condition())
        {
            if (Stopwatch.GetElapsedTime(started) >= most)
                Assert.Fail($"Not true within {most}: {expectation()}.");
            await Task.Delay(pause);
            pause = TimeSpan.FromTicks(Math.Min(pause.Ticks * 2, LongestPause.Ticks));
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
