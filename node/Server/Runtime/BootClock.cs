using System.Runtime.InteropServices;

namespace KvCluster.Node.Runtime;

/// <summary>
/// The clock of leases and timeouts: <c>CLOCK_BOOTTIME</c>, which continues while the machine is suspended, so that a lease never
/// survives a suspension. Wall time and timers are the system's.
/// </summary>
/// <remarks>On systems other than Linux the system's monotonic clock is used, which may stop while the machine sleeps.</remarks>
internal sealed class BootClock : TimeProvider
{
    private const int ClockBootTime = 7;
    private const long NanosecondsPerSecond = 1_000_000_000;
    private static readonly bool OnLinux = OperatingSystem.IsLinux();

    public static readonly BootClock Instance = new();

    private BootClock()
    {
    }

    public override long TimestampFrequency => OnLinux ? NanosecondsPerSecond : base.TimestampFrequency;

    public override long GetTimestamp()
    {
        if (!OnLinux)
            return base.GetTimestamp();
        if (ClockGetTime(ClockBootTime, out var time) != 0)
            throw new PlatformNotSupportedException($"clock_gettime(CLOCK_BOOTTIME) failed with errno {Marshal.GetLastPInvokeError()}.");
        return time.Seconds * NanosecondsPerSecond + time.Nanoseconds;
    }

    [DllImport("libc", EntryPoint = "clock_gettime", SetLastError = true)]
    private static extern int ClockGetTime(int clock, out TimeSpec time);

    [StructLayout(LayoutKind.Sequential)]
    private struct TimeSpec
    {
        public long Seconds;
        public long Nanoseconds;
    }
}
