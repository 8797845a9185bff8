using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A test on a file system that errs by rules; skipped, with the reason, where badfs or FUSE is missing.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class BadDiskFactAttribute : FactAttribute
{
    public BadDiskFactAttribute() => Skip = new ToolFactAttribute("etcd", "etcdctl", "badfs", "fusermount3", "dd").Skip
        ?? (File.Exists("/dev/fuse") ? null : "there is no /dev/fuse");
}
