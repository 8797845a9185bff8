using System.Diagnostics;
using System.Runtime.InteropServices;

namespace KvCluster.Node.Api;

/// <summary>
/// How often a thread has waited for the disk, according to the kernel's counters: pages that it had to fetch, by a fault or by readahead, and blocks that it
/// read. This distinguishes it from a thread that was merely preempted or suspended for a garbage collection.
/// </summary>
internal static class DiskWaits
{
    private const int ThisThread = 1;

    private static readonly bool OnLinux = OperatingSystem.IsLinux();

    /// <summary>
    /// The number for this thread since it began. Where the system does not count, the value differs at every call: the thread may have waited.
    /// </summary>
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
