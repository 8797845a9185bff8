using KvCluster.Processes;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>A test of some minutes with Prometheus and a small file system. Unless it is requested and possible, it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LongSmallDiskFactAttribute : FactAttribute
{
    public LongSmallDiskFactAttribute() => Skip = Environment.GetEnvironmentVariable("KV_LONG") != "1" ? "takes some minutes: only with KV_LONG=1"
        : new SmallDiskFactAttribute().Skip ?? new ToolFactAttribute("prometheus").Skip;
}
