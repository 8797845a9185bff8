using System.Globalization;

namespace KvCluster.ClusterTests;

/// <summary>The wall clock of a process, which a test sets while the process runs. Its other clocks stay as they are.</summary>
/// <param name="file">A file that tells the process the difference.</param>
internal sealed class WallClock(string file)
{
    /// <summary>The library that a process is started with; null: it is not installed.</summary>
    public static string? Library { get; } = Directory.Exists("/usr/lib")
        ? Directory.EnumerateDirectories("/usr/lib", "*-linux-gnu")
            .Select(static folder => Path.Combine(folder, "faketime", "libfaketimeMT.so.1")).FirstOrDefault(File.Exists)
        : null;

    /// <summary>Starts a program with this clock.</summary>
    public IReadOnlyList<string> Wrapper =>
        ["env", $"LD_PRELOAD={Library}", $"FAKETIME_TIMESTAMP_FILE={file}", "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];

    /// <summary>Sets the clock. The process notices within a second.</summary>
    /// <param name="difference">What it is ahead of the machine's clock.</param>
    public void Set(TimeSpan difference)
    {
        // Replaced at once, so that no half of it is read.
        var next = file + ".next";
        File.WriteAllText(
            next, string.Create(CultureInfo.InvariantCulture, $"{(difference < TimeSpan.Zero ? '-' : '+')}{Math.Abs(difference.TotalSeconds):F0}\n"));
        File.Move(next, file, overwrite: true);
    }
}
