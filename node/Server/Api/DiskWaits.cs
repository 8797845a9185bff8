using System.Diagnostics;
using System.Runtime.InteropServices;

namespace KvCluster.Node.Api;

/// <summary>
/// How often a thread has waited for the disk, by what the kernel counts for it: pages that it had to fetch, by a fault or ahead of one, and blocks that it read. A thread that merely had no
/// processor, or stood still for a collection, is told from that.
/// </summary>
internal static class DiskWaits
{
    private const int ThisThread = 1;

    private static readonly bool OnLinux = OperatingSystem.IsLinux();

    /// <summary>Of this thread since it began. Where nobody counts that, another number each time: it may have waited.</summary>
    public static long OfThisThread() => OnLinux && GetUsage(ThisThread, out var usage) == 0 ? usage.MajorFaults + usage.BlocksRead : Stopwatch.GetTimestamp();

    [DllImport("libc", EntryPoint = "getrusage")]
    private static extern int GetUsage(int who, out Usage usage);

    // struct rusage, getrusage(2), of 64-bit systems.
    [StructLayout(LayoutKind.Explicit, Size = 144)]
    private struct Usage
    {
        [FieldOffset(72)]
        public long MajorFaults;

        [FieldOffset(88)]
        public long BlocksRead;
    }
}
