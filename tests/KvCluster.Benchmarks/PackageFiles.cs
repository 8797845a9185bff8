using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.Benchmarks;

/// <summary>The list of the files of a Linux distribution, real data that stands beside the repository, or where KV_SHARED points.</summary>
internal static class PackageFiles
{
    /// <summary>The list's name.</summary>
    public const string Name = "files.tsv";

    /// <summary>Unpacks the list: 1.7 million lines of a key, a tab and a value, 146 MB. Null, and a line of progress, if it or xz is not there.</summary>
    public static async Task<ReadOnlyMemory<byte>?> ReadAsync(Action<string> progress)
    {
        var path = Path.Combine(Environment.GetEnvironmentVariable("KV_SHARED") ?? Path.Combine(Tools.Repository(), "..", "shared"), "data", Name + ".xz");
        if (!File.Exists(path) || Tools.Find("xz") is not { } xz)
        {
            progress($"SKIPPED {Name}: {Name}.xz or xz is not there");
            return null;
        }
        using var lines = new MemoryStream();
        using (var unpacking = Process.Start(new ProcessStartInfo(xz, ["-dc", path]) { RedirectStandardOutput = true })!)
            await unpacking.StandardOutput.BaseStream.CopyToAsync(lines);
        return lines.GetBuffer().AsMemory(0, (int)lines.Length);
    }
}
