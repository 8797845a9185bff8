using System.Globalization;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>
/// How much memory the system lets this process use, and what follows for its budgets: a container with a limit is ended by the kernel when it takes more.
/// Used when a program reads its settings.
/// </summary>
internal static class ProcessMemory
{
    /// <summary>A number that a control group of the first version has instead of no limit is greater.</summary>
    private const long BytesMax = 1L << 50;

    /// <summary>The least limit of the control groups of this process in bytes; null if there is none.</summary>
    public static long? LimitBytes { get; } = OperatingSystem.IsLinux() ? LimitOf(ReadFile("/proc/self/cgroup") ?? "", ReadFile) : null;

    /// <summary>The default of <see cref="CommonSettings.CallMemoryMebibytes"/>: a quarter of the limit, within bounds.</summary>
    /// <param name="limitBytes">The limit; null if there is none.</param>
    public static int CallMemoryDefault(long? limitBytes) => limitBytes is { } limit
        ? (int)Math.Clamp(limit / 4 >> 20, CallMemory.MebibytesMin, CallMemory.MebibytesDefault)
        : CallMemory.MebibytesDefault;

    /// <summary>The memory for calls that the settings give, or the default.</summary>
    public static int CallMemoryOf(Settings settings) => settings.Get(CommonSettings.CallMemoryMebibytes) ?? CallMemoryDefault(LimitBytes);

    /// <summary>Why a program must not start under a limit; null if it may.</summary>
    /// <param name="limitBytes">The limit; null if there is none.</param>
    /// <param name="program">What it is.</param>
    /// <param name="parts">What it needs, in MiB, and what for.</param>
    public static string? Refusal(long? limitBytes, string program, params (string For, int Mebibytes)[] parts)
    {
        var needed = parts.Sum(static part => (long)part.Mebibytes);
        return limitBytes is { } limit && limit >> 20 < needed
            ? $"The system lets this {program} use {limit >> 20} MiB, and it needs {needed}: "
                + $"{string.Join(", ", parts.Select(static part => $"{part.For} {part.Mebibytes}"))}. "
                + "Nothing was started; raise the limit of the container, or lower what is above its least value."
            : null;
    }

    /// <summary>The least limit of the control groups of a process.</summary>
    /// <param name="groups">The text of <c>/proc/self/cgroup</c>.</param>
    /// <param name="read">The text of a file; null if there is none.</param>
    internal static long? LimitOf(string groups, Func<string, string?> read)
    {
        long? least = null;
        foreach (var line in groups.Split('\n'))
        {
            // A number, the controllers (none in version 2), and the path below the mount.
            if (line.Split(':', 3) is not [_, var controllers, var path])
                continue;
            if (controllers.Length > 0 && !controllers.Split(',').Contains("memory"))
                continue;
            var (mount, file) = controllers.Length > 0 ? ("/sys/fs/cgroup/memory", "memory.limit_in_bytes") : ("/sys/fs/cgroup", "memory.max");
            // In a container the mount may show only the container's part of the tree, so its root is looked at in any case.
            for (var group = path.TrimEnd('/'); ; group = group[..group.LastIndexOf('/')])
            {
                if (long.TryParse(read($"{mount}{group}/{file}"), NumberStyles.None, CultureInfo.InvariantCulture, out var limit) && limit < BytesMax)
                    least = Math.Min(least ?? limit, limit);
                if (group.Length == 0)
                    break;
            }
        }
        return least;
    }

    private static string? ReadFile(string path)
    {
        try
        {
            return File.ReadAllText(path).Trim();
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // Without the file there is no such limit.
            return null;
        }
    }
}
