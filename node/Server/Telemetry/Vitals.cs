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

    private static readonly CounterLine ProcessStat = new("/proc/self/stat");
    private static readonly CounterLine Pressure = new("/proc/pressure/cpu");

    /// <summary>Reads the counters. Any thread.</summary>
    /// <param name="thread">Those of a thread; null: none.</param>
    public static Vitals Read(ThreadCounters? thread)
    {
        Span<char> line = stackalloc char[CounterLine.CharsMax];
        return new Vitals(
            Stopwatch.GetTimestamp(),
            GC.GetTotalPauseDuration(),
            JitInfo.GetCompilationTime(),
            ParseMajorFaults(line[..ProcessStat.Read(line)]),
            0,
            TimeSpan.Zero,
            TimeSpan.Zero,
            ParsePressure(line[..Pressure.Read(line)])).With(thread);
    }

    /// <summary>The same counters of the process, and those of a thread at this moment.</summary>
    /// <param name="thread">The thread; null: none.</param>
    public Vitals With(ThreadCounters? thread)
    {
        if (thread is null)
            return this;
        Span<char> line = stackalloc char[CounterLine.CharsMax];
        var faults = ParseMajorFaults(line[..thread.Stat.Read(line)]);
        var (ran, waited) = ParseScheduled(line[..thread.Scheduled.Read(line)]);
        return this with { ThreadMajorFaults = faults, ThreadRan = ran, ThreadWaited = waited };
    }

    /// <summary>Parses the nanoseconds spent on a processor, and waiting for one.</summary>
    internal static (TimeSpan Ran, TimeSpan Waited) ParseScheduled(ReadOnlySpan<char> line)
    {
        Span<Range> fields = stackalloc Range[3];
        return line.Split(fields, ' ') >= 2 && long.TryParse(line[fields[0]], CultureInfo.InvariantCulture, out var ran)
            && long.TryParse(line[fields[1]], CultureInfo.InvariantCulture, out var waited)
            ? (TimeSpan.FromMicroseconds(ran / 1_000), TimeSpan.FromMicroseconds(waited / 1_000))
            : default;
    }

    internal static long ParseMajorFaults(ReadOnlySpan<char> line)
    {
        var rest = line[(line.LastIndexOf(')') + 1)..];
        // The last range is all that follows.
        Span<Range> fields = stackalloc Range[MajorFaultsField + 2];
        return rest.Split(fields, ' ', StringSplitOptions.RemoveEmptyEntries) > MajorFaultsField
            && long.TryParse(rest[fields[MajorFaultsField]], CultureInfo.InvariantCulture, out var faults) ? faults : 0;
    }

    /// <summary>Parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS".</summary>
    internal static TimeSpan ParsePressure(ReadOnlySpan<char> line)
    {
        const string total = "total=";
        var at = line.IndexOf(total, StringComparison.Ordinal);
        return at >= 0 && long.TryParse(line[(at + total.Length)..], CultureInfo.InvariantCulture, out var microseconds)
            ? TimeSpan.FromMicroseconds(microseconds)
            : TimeSpan.Zero;
    }
}
