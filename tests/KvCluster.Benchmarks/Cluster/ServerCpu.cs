using System.Globalization;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>CPU time of other processes from /proc, user and system together.</summary>
internal static class ServerCpu
{
    // USER_HZ, the unit in which the kernel reports times to user space.
    private const double MicrosecondsPerTick = 1_000_000 / 100.0;

    /// <summary>The sum over the processes, in microseconds since their start, accurate to 10 ms.</summary>
    public static double MicrosecondsOf(IEnumerable<int> processes) => processes.Sum(static process =>
    {
        var stat = File.ReadAllText($"/proc/{process.ToString(CultureInfo.InvariantCulture)}/stat");
        // Fields are counted after the name, which may contain anything: utime and stime are the 14th and 15th of all.
        var fields = stat[(stat.LastIndexOf(')') + 2)..].Split(' ');
        return (double.Parse(fields[11], CultureInfo.InvariantCulture) + double.Parse(fields[12], CultureInfo.InvariantCulture)) * MicrosecondsPerTick;
    });
}
