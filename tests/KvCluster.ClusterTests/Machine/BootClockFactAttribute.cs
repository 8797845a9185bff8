using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A test that starts nodes with another boot clock, which takes root and a kernel with time namespaces; skipped, with the reason, elsewhere.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class BootClockFactAttribute : FactAttribute
{
    public BootClockFactAttribute() => Skip = new ToolFactAttribute("etcd", "etcdctl", "lincheck", "unshare").Skip ?? (CanShift() ? null : "time namespaces are not to be had here");

    private static bool CanShift()
    {
        using var tried = Process.Start(new ProcessStartInfo("unshare", ["-T", "--boottime", "1000", "true"]) { RedirectStandardError = true })!;
        tried.WaitForExit();
        return tried.ExitCode == 0;
    }
}
