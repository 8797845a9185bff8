using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A test that mounts small file systems, which takes root and loop devices; skipped, with the reason, elsewhere.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class SmallDiskFactAttribute : FactAttribute
{
    public SmallDiskFactAttribute() => Skip = new ToolFactAttribute("etcd", "etcdctl", "lincheck", "mkfs.ext4", "mount").Skip
        ?? (Environment.IsPrivilegedProcess && File.Exists("/dev/loop-control") ? null : "mounting a file system takes root and loop devices");
}
