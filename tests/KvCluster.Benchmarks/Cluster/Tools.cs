using System.Diagnostics;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Programs to measure against, which a machine may or may not have: on PATH, or unpacked by the tools folder beside the repository.</summary>
internal static class Tools
{
    private static readonly Lazy<string?> Unpacked = new(Unpack);

    /// <summary>The program's path, or null where it cannot be had.</summary>
    public static string? Find(string program) => (Environment.GetEnvironmentVariable("PATH") ?? "").Split(Path.PathSeparator)
        .Append(Unpacked.Value ?? "")
        .Where(folder => folder.Length > 0)
        .Select(folder => Path.Combine(folder, program))
        .FirstOrDefault(File.Exists);

    /// <summary>The repository, found upwards from this program.</summary>
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
