namespace KvCluster.Tests.Storage.Pages;

/// <summary>The seed of a random test: the environment's KV_SEED, or the test's own default.</summary>
internal static class Seeds
{
    public static int Take(int byDefault) =>
        int.TryParse(Environment.GetEnvironmentVariable("KV_SEED"), out var seed) ? seed : byDefault;
}
