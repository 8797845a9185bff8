using System.Diagnostics;
using System.Globalization;
using Xunit.Abstractions;

namespace KvCluster.Shared;

/// <summary>
/// The seeds of random tests. A failing test prints its seed, and KV_SEED repeats it. KV_LONG=1 makes long runs, and KV_SECONDS bounds the time in which one
/// begins another seed.
/// </summary>
internal static class Seeds
{
    /// <summary>Whether this is a long run.</summary>
    public static bool IsLong { get; } = Environment.GetEnvironmentVariable("KV_LONG") == "1";

    /// <summary>The seed to repeat; null: none.</summary>
    public static int? Given { get; } =
        Environment.GetEnvironmentVariable("KV_SEED") is { Length: > 0 } text ? int.Parse(text, CultureInfo.InvariantCulture) : null;

    private static readonly TimeSpan TimeMax =
        Environment.GetEnvironmentVariable("KV_SECONDS") is { Length: > 0 } text ? TimeSpan.FromSeconds(int.Parse(text, CultureInfo.InvariantCulture))
            : TimeSpan.MaxValue;

    /// <summary>Whether a test that began then may go on with what is not necessary.</summary>
    public static bool HasTime(long began) => Stopwatch.GetElapsedTime(began) < TimeMax;

    /// <summary>Randomness of a new seed, or of the one to repeat, which is printed if the test fails.</summary>
    public static Random Next(ITestOutputHelper output)
    {
        var seed = Given ?? Random.Shared.Next();
        output.WriteLine($"KV_SEED={seed}");
        return new Random(seed);
    }

    /// <summary>Runs a test with a number of seeds, or only with the one to repeat. A failure names its seed.</summary>
    public static void Run(int count, Action<Random> test)
    {
        foreach (var seed in Chosen(count))
        {
            try
            {
                test(new Random(seed));
            }
            catch (Exception exception)
            {
                throw Named(seed, exception);
            }
        }
    }

    /// <inheritdoc cref="Run"/>
    public static async Task RunAsync(int count, Func<Random, Task> test)
    {
        foreach (var seed in Chosen(count))
        {
            try
            {
                await test(new Random(seed));
            }
            catch (Exception exception)
            {
                throw Named(seed, exception);
            }
        }
    }

    private static IEnumerable<int> Chosen(int count)
    {
        if (Given is { } given)
            return [given];
        var first = IsLong ? Random.Shared.Next(1 << 30) : 1;
        var began = Stopwatch.GetTimestamp();
        return Enumerable.Range(first, IsLong ? count * 50 : count).TakeWhile(seed => seed == first || HasTime(began));
    }

    private static Xunit.Sdk.XunitException Named(int seed, Exception exception) => new($"KV_SEED={seed}: {exception.Message}", exception);
}
