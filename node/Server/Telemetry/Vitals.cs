using System.Diagnostics;
using System.Globalization;
using System.Runtime;

namespace KvCluster.Node.Telemetry;

/// <summary>
/// Counters of the runtime and the kernel for a process, and for one of its threads, at one moment. Values that the system does not provide are 0.
/// </summary>
/// <param name="At">Timestamp of <see cref="Stopwatch"/>.</param>
/// <param name="Paused">Time paused for garbage collections since the process began.</param>
/// <param name="Compiled">Time of JIT compilation on all threads.</param>
/// <param name="MajorFaults">Page faults of the process that waited for the disk.</param>
/// <param name="ThreadMajorFaults">Those of the thread.</param>
/// <param name="ThreadRan">Time that the thread ran on a processor.</param>
/// <param name="ThreadWaited">Time that it was ready to run and had no processor.</param>
/// <param name="Pressed">Time during which some thread of the machine was ready to run and had no processor.</param>
internal readonly record struct Vitals(
    long At, TimeSpan Paused, TimeSpan Compiled, long MajorFaults, long ThreadMajorFaults, TimeSpan ThreadRan, TimeSpan ThreadWaited, TimeSpan Pressed)
{
    // A field of /proc/PID/stat, counted after the name in parentheses, which may contain spaces.
    private const int MajorFaultsField = 9;

    /// <summary>Reads the counters.</summary>
    /// <param name="thread">The system's id of a thread; 0: none.</param>
    public static Vitals Read(int thread)
    {
        var task = string.Create(CultureInfo.InvariantCulture, $"/proc/self/task/{thread}/");
        var (ran, waited) = thread == 0 ? default : ParseScheduled(ReadLine(task + "schedstat"));
        return new Vitals(
            Stopwatch.GetTimestamp(),
            GC.GetTotalPauseDuration(),
            JitInfo.GetCompilationTime(),
            ParseMajorFaults(ReadLine("/proc/self/stat")),
            thread == 0 ? 0 : ParseMajorFaults(ReadLine(task + "stat")),
            ran,
            waited,
            ParsePressure(ReadLine("/proc/pressure/cpu")));
    }

    /// <summary>Parses the nanoseconds spent on a processor, and waiting for one.</summary>
    internal static (TimeSpan Ran, TimeSpan Waited) ParseScheduled(string line)
    {
        var fields = line.Split(' ');
        return fields.Length >= 2 && long.TryParse(fields[0], CultureInfo.InvariantCulture, out var ran) && long.TryParse(fields[1], CultureInfo.InvariantCulture, out var waited)
            ? (TimeSpan.FromMicroseconds(ran / 1_000), TimeSpan.FromMicroseconds(waited / 1_000))
            : default;
    }

    internal static long ParseMajorFaults(string line)
    {
        var fields = line[(line.LastIndexOf(')') + 1)..].Split(' ', StringSplitOptions.RemoveEmptyEntries);
        return fields.Length > MajorFaultsField && long.TryParse(fields[MajorFaultsField], CultureInfo.InvariantCulture, out var faults) ? faults : 0;
    }

    /// <summary>Parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS".</summary>
    internal static TimeSpan ParsePressure(string line)
    {
        const string total = "total=";
        var at = line.IndexOf(total, StringComparison.Ordinal);
        return at >= 0 && long.TryParse(line.AsSpan(at + total.Length), CultureInfo.InvariantCulture, out var microseconds) ? TimeSpan.FromMicroseconds(microseconds) : TimeSpan.Zero;
    }

    private static string ReadLine(string path)
    {
        try
        {
            using var reader = new StreamReader(path);
            return reader.ReadLine() ?? "";
        }
        catch (Exception absent) when (absent is IOException or UnauthorizedAccessException)
        {
            // Another operating system, an old kernel, or a thread that has ended. The value is then not known and reported as 0.
            return "";
        }
    }
}
