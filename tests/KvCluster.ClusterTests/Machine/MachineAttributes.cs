using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A test that mounts small file systems, which takes root and loop devices. Elsewhere it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class SmallDiskFactAttribute : FactAttribute
{
    public SmallDiskFactAttribute() => Skip = new ToolFactAttribute("etcd", "etcdctl", "lincheck").Skip ?? new LoopMountFactAttribute().Skip;
}

/// <summary>
/// A test that slows down a small file system, which takes root, loop devices and control groups of version 1. Elsewhere it is skipped with the
/// reason.
/// </summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class SlowDiskFactAttribute : FactAttribute
{
    public SlowDiskFactAttribute() => Skip = new SmallDiskFactAttribute().Skip ?? new ToolFactAttribute("findmnt").Skip
        ?? (File.Exists(Path.Combine(SmallDisk.Throttles, "blkio.throttle.write_iops_device")) ? null
            : "there is no control group of version 1 for block devices");
}

/// <summary>A test on a file system with injected faults. Without badfs or FUSE it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class BadDiskFactAttribute : FactAttribute
{
    public BadDiskFactAttribute() => Skip = new ToolFactAttribute("etcd", "etcdctl", "badfs", "fusermount3", "dd").Skip
        ?? (File.Exists("/dev/fuse") ? null : "there is no /dev/fuse");
}

/// <summary>
/// A test that starts nodes with a different boot clock, which takes root and a kernel with time namespaces. Elsewhere it is skipped with the reason.
/// </summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class BootClockFactAttribute : FactAttribute
{
    public BootClockFactAttribute() =>
        Skip = new ToolFactAttribute("etcd", "etcdctl", "lincheck", "unshare").Skip ?? (CanShift() ? null : "time namespaces are not available here");

    private static bool CanShift()
    {
        using var tried = Process.Start(new ProcessStartInfo("unshare", ["-T", "--boottime", "1000", "true"]) { RedirectStandardError = true })!;
        tried.WaitForExit();
        return tried.ExitCode == 0;
    }
}

/// <summary>A test whose nodes have a wall clock of their own, which takes libfaketime. Elsewhere it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class WallClockFactAttribute : FactAttribute
{
    public WallClockFactAttribute() =>
        Skip = new ToolFactAttribute("etcd", "etcdctl", "env").Skip ?? (WallClock.Library is null ? "libfaketime is not installed" : null);
}
