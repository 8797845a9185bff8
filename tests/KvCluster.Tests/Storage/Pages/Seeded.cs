using System.Globalization;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Seeds of random tests. Failures print their seed, and KV_SEED repeats it.</summary>
internal static class Seeded
{
    /// <summary>Runs a test with a number of seeds, or only with KV_SEED. A failure names its seed.</summary>
    public static void Run(int count, Action<Random> test)
    {
        if (Environment.GetEnvironmentVariable("KV_SEED") is { Length: > 0 } given)
        {
            test(new Random(int.Parse(given, CultureInfo.InvariantCulture)));
            return;
        }
        var isLong = Environment.GetEnvironmentVariable("KV_LONG") == "1";
        var first = isLong ? Random.Shared.Next(1 << 30) : 1;
        count = isLong ? count * 50 : count;
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
