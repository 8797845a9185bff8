using System.Globalization;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>Randomness whose seed a failing test prints, so that KV_SEED repeats it.</summary>
internal static class Seeds
{
    public static Random Next(ITestOutputHelper output)
    {
        var seed = Environment.GetEnvironmentVariable("KV_SEED") is { Length: > 0 } text
            ? int.Parse(text, CultureInfo.InvariantCulture)
            : Random.Shared.Next();
        output.WriteLine($"KV_SEED={seed}");
        return new Random(seed);
    }
}
