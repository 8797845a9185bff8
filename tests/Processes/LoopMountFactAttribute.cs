namespace KvCluster.Processes;

/// <summary>A test that mounts small file systems, which takes root and loop devices. Elsewhere it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LoopMountFactAttribute : FactAttribute
{
    public LoopMountFactAttribute() => Skip = new ToolFactAttribute("mkfs.ext4", "mount").Skip
        ?? (Environment.IsPrivilegedProcess && File.Exists("/dev/loop-control") ? null : "mounting a file system takes root and loop devices");
}
