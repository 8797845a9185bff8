using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.Benchmarks;

/// <summary>Lists of the files and the tags of a Linux distribution, real data that stands beside the repository, or where KV_SHARED points.</summary>
internal static class PackageFiles
{
    /// <summary>The list of files: 1.7 million lines of a key, a tab and a value, 146 MB.</summary>
    public const string Name = "files.tsv";

    /// <summary>The list of packages: 63,000 lines of a key, a tab and a JSON document, 36 MB.</summary>
    public const string Packages = "packages.tsv";

    /// <summary>The list of tags: 176,000 lines of the key of a set, a tab and a member.</summary>
    public const string Tags = "tags.tsv";

    /// <summary>The records of a list: a key, a tab and a value on each line.</summary>
    public static IEnumerable<(ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value)> RecordsIn(ReadOnlyMemory<byte> text)
    {
        for (var rest = text; !rest.IsEmpty;)
        {
            var end = rest.Span.IndexOf((byte)'\n');
            var line = end < 0 ? rest : rest[..end];
            rest = end < 0 ? default : rest[(end + 1)..];
            var tab = line.Span.IndexOf((byte)'\t');
            if (tab > 0)
                yield return (line[..tab], line[(tab + 1)..]);
        }
    }

    /// <summary>Unpacks a list. Null, and a line of progress, if it or xz is not there.</summary>
    public static async Task<ReadOnlyMemory<byte>?> ReadAsync(Action<string> progress, string name = Name)
    {
        var path = Path.Combine(Environment.GetEnvironmentVariable("KV_SHARED") ?? Path.Combine(Tools.Repository(), "..", "shared"), "data", name + ".xz");
        if (!File.Exists(path) || Tools.Find("xz") is not { } xz)
        {
            progress($"SKIPPED {name}: {name}.xz or xz is not there");
            return null;
        }
        using var lines = new MemoryStream();
        using (var unpacking = Process.Start(new ProcessStartInfo(xz, ["-dc", path]) { RedirectStandardOutput = true })!)
            await unpacking.StandardOutput.BaseStream.CopyToAsync(lines);
        return lines.GetBuffer().AsMemory(0, (int)lines.Length);
    }
}
