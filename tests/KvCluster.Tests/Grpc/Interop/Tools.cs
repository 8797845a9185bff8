using System.Collections.Concurrent;
using System.ComponentModel;
using System.Diagnostics;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>Programs that tests run: from PATH, or from the packed tools beside the repository where a developer has them.</summary>
internal static class Tools
{
    private static readonly ConcurrentDictionary<string, string?> Found = new();

    /// <summary>The path of a program; null where there is none.</summary>
    public static string? Find(string program) => Found.GetOrAdd(program, static name =>
    {
        var folders = (Environment.GetEnvironmentVariable("PATH") ?? "").Split(Path.PathSeparator, StringSplitOptions.RemoveEmptyEntries);
        return folders.Append(SharedFolder() ?? "").Select(folder => Path.Combine(folder, name)).FirstOrDefault(File.Exists);
    });

    // Its `install` unpacks the tools and prints their folder.
    private static string? SharedFolder()
    {
        var install = Path.Combine(House.House.Root, "..", "shared", "tools", "install");
        if (!File.Exists(install))
            return null;
        try
        {
            using var process = Process.Start(new ProcessStartInfo(install) { RedirectStandardOutput = true })!;
            var folder = process.StandardOutput.ReadToEnd().Trim();
            process.WaitForExit();
            return process.ExitCode == 0 ? folder : null;
        }
        catch (Win32Exception)
        {
            return null;
        }
    }
}
