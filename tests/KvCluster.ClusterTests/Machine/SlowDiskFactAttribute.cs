using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A test that slows a small file system down, which takes root, loop devices and control groups of version 1; skipped, with the reason, elsewhere.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class SlowDiskFactAttribute : FactAttribute
{
    public SlowDiskFactAttribute() => Skip = new SmallDiskFactAttribute().Skip ?? new ToolFactAttribute("findmnt").Skip
        ?? (File.Exists(Path.Combine(SmallDisk.Throttles, "blkio.throttle.write_iops_device")) ? null : "there is no control group of version 1 for block devices");
}
