using System.Diagnostics;

namespace KvCluster.Tests.Grpc;

/// <summary>Waits for what is to become true, with a limit that only a failure reaches.</summary>
internal static class Eventually
{
    public static async Task TrueAsync(Func<bool> condition, string expectation)
    {
        var waited = Stopwatch.StartNew();
        while (!condition())
        {
            Assert.True(waited.Elapsed < TimeSpan.FromSeconds(30), $"Not within 30 s: {expectation}.");
            await Task.Delay(5);
        }
    }
}
