using System.Collections.Concurrent;
using System.Diagnostics;

namespace KvCluster.Processes;

/// <summary>Programs that tests and benchmarks run and that a machine may lack: on PATH, or unpacked by the tools directory beside the repository.</summary>
internal static class Tools
{
    private static readonly ConcurrentDictionary<string, string?> Found = new();
    private static readonly Lazy<string?> Unpacked = new(Unpack);

    /// <summary>The path of a program, or null if there is none.</summary>
    public static string? Find(string program) => Found.GetOrAdd(program, static name =>
    {
        var folders = (Environment.GetEnvironmentVariable("PATH") ?? "").Split(Path.PathSeparator, StringSplitOptions.RemoveEmptyEntries);
        return folders.Select(folder => Path.Combine(folder, name)).FirstOrDefault(File.Exists) is { } path
            ? path
            : Unpacked.Value is { } unpacked && Path.Combine(unpacked, name) is var beside && File.Exists(beside) ? beside : null;
    });

    /// <summary>All programs of a name, in search order. A machine may have an old one on PATH and a newer one in the tools directory.</summary>
    public static IEnumerable<string> FindAll(string program)
    {
        var folders = (Environment.GetEnvironmentVariable("PATH") ?? "").Split(Path.PathSeparator, StringSplitOptions.RemoveEmptyEntries);
        return folders.Append(Unpacked.Value ?? "").Select(folder => Path.Combine(folder, program)).Where(File.Exists).Distinct();
    }

    /// <summary>Runs a program until it exits.</summary>
    public static async Task<(int ExitCode, string Output, string Error)> RunAsync(string program, params IEnumerable<string> arguments)
    {
        using var process = Process.Start(new ProcessStartInfo(program, arguments) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        var (output, error) = (process.StandardOutput.ReadToEndAsync(), process.StandardError.ReadToEndAsync());
        await process.WaitForExitAsync();
        return (process.ExitCode, (await output).Trim(), (await error).Trim());
    }

    /// <summary>
    /// A program of this repository: artifacts/bin/PROJECT/CONFIGURATION/PROGRAM, of the same configuration as this one. What the local cluster starts is
    /// beside it.
    /// </summary>
    public static string Built(string program, string project = "KvCluster.Local")
    {
        var own = new DirectoryInfo(AppContext.BaseDirectory);
        return Path.Combine(own.Parent!.Parent!.FullName, project, own.Name, OperatingSystem.IsWindows() ? program + ".exe" : program);
    }

    /// <summary>The repository, searched upwards from this program.</summary>
    public static string Repository()
    {
        for (var folder = new DirectoryInfo(AppContext.BaseDirectory); folder is not null; folder = folder.Parent)
            if (File.Exists(Path.Combine(folder.FullName, "KvCluster.sln")))
                return folder.FullName;
        throw new DirectoryNotFoundException($"No KvCluster.sln above {AppContext.BaseDirectory}.");
    }

    private static string? Unpack()
    {
        var shared = Environment.GetEnvironmentVariable("KV_SHARED") ?? Path.Combine(Repository(), "..", "shared");
        var install = Path.Combine(shared, "tools", "install");
        if (!File.Exists(install))
            return null;
        using var process = Process.Start(new ProcessStartInfo(install) { RedirectStandardOutput = true })!;
        var folder = process.StandardOutput.ReadToEnd().Trim();
        process.WaitForExit();
        return process.ExitCode == 0 ? folder : null;
    }
}
