using System.Globalization;
using Xunit.Abstractions;

namespace KvCluster.Tests;

/// <summary>The seeds of random tests. A failing test prints its seed, and KV_SEED repeats it. KV_LONG=1 makes long runs.</summary>
internal static class Seeds
{
    /// <summary>Whether this is a long run.</summary>
    public static bool IsLong { get; } = Environment.GetEnvironmentVariable("KV_LONG") == "1";

    /// <summary>The seed to repeat; null: none.</summary>
    public static int? Given { get; } = Environment.GetEnvironmentVariable("KV_SEED") is { Length: > 0 } text ? int.Parse(text, CultureInfo.InvariantCulture) : null;

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
        if (Given is { } given)
        {
            test(new Random(given));
            return;
        }
        var first = IsLong ? Random.Shared.Next(1 << 30) : 1;
        count = IsLong ? count * 50 : count;
        for (var seed = first; seed < first + count; seed++)
        {
            try
            {
                test(new Random(seed));
            }
            catch (Exception exception)
            {
                throw new Xunit.Sdk.XunitException($"KV_SEED={seed}: {exception.Message}", exception);
            }
        }
    }
}
