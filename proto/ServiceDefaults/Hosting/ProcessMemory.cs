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

    // The names of each setting in the environment and in a program's own file.
    private static readonly (string Variable, string Setting)[] HeapSettings =
        [("DOTNET_GCHeapHardLimit", "System.GC.HeapHardLimit"), ("DOTNET_GCHeapHardLimitPercent", "System.GC.HeapHardLimitPercent")];

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

    /// <summary>
    /// How large the heap of managed objects may become under a limit. The runtime lets it have three quarters, whatever else the process takes, and collects
    /// late where the processor is lacking: a node under a limit of 390 MiB, whose pages are outside the heap, was ended by the kernel on a busy machine.
    /// </summary>
    /// <param name="limitBytes">The limit.</param>
    /// <param name="outsideMebibytes">What the process takes outside the heap at most.</param>
    /// <param name="insideMebibytes">
    /// What it must be able to have in the heap. Both count what a budget may use in either place, so together they may be more than the limit. The heap gets
    /// this much then: the kernel ends a process that uses all of both, and that is rarer than a heap that has no room for what the budgets allow.
    /// </param>
    internal static long HeapMax(long limitBytes, int outsideMebibytes, int insideMebibytes) =>
        Math.Min(limitBytes / 4 * 3, Math.Max(limitBytes - ((long)outsideMebibytes << 20), (long)insideMebibytes << 20));

    /// <summary>
    /// Has the runtime keep to <see cref="HeapMax"/> from now on. Without a limit, or where somebody has configured the heap, nothing changes. What the runtime
    /// says of the memory available is less afterwards, so budgets that follow it are decided before.
    /// </summary>
    /// <param name="outsideMebibytes">What this process takes outside the heap at most.</param>
    /// <param name="insideMebibytes">What it must be able to have in the heap.</param>
    public static void LimitHeap(int outsideMebibytes, int insideMebibytes)
    {
        if (LimitBytes is not { } limit || IsHeapConfigured())
            return;
        AppContext.SetData("GCHeapHardLimit", (ulong)HeapMax(limit, outsideMebibytes, insideMebibytes));
        GC.RefreshMemoryLimit();
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

    private static bool IsHeapConfigured() => HeapSettings.Any(
        static name => Environment.GetEnvironmentVariable(name.Variable) is not null || AppContext.GetData(name.Setting) is not null);

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
