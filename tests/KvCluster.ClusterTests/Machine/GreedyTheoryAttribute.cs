namespace KvCluster.ClusterTests;

/// <summary>A test with a greedy caller; skipped, with the reason, where there is no Python with grpcio, or, if it is a long one, without KV_LONG=1.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class GreedyTheoryAttribute : TheoryAttribute
{
    public GreedyTheoryAttribute(bool isLong = false) =>
        Skip = Greedy.SkipReason ?? (isLong && Environment.GetEnvironmentVariable("KV_LONG") != "1" ? "takes long; runs with KV_LONG=1" : null);
}
