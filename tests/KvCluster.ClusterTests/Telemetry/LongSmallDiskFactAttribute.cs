using KvCluster.Processes;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>A test of some minutes with Prometheus and a small file system; skipped, with the reason, where it was not asked for or cannot be.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LongSmallDiskFactAttribute : FactAttribute
{
    public LongSmallDiskFactAttribute() => Skip = Environment.GetEnvironmentVariable("KV_LONG") != "1" ? "takes some minutes: only with KV_LONG=1"
        : new SmallDiskFactAttribute().Skip ?? new ToolFactAttribute("prometheus").Skip;
}
