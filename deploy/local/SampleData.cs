using System.IO.Compression;
using System.Text;

namespace KvCluster.Local;

/// <summary>The sample data: every 32nd record of a Linux distribution's package index. A key is `packages/SECTION/NAME`, a value a JSON document.</summary>
internal static class SampleData
{
    /// <summary>Returns the records in the order of the file.</summary>
    public static IEnumerable<(string Key, string Value)> Records()
    {
        using var packed = typeof(SampleData).Assembly.GetManifestResourceStream("packages.tsv.gz")!;
        using var lines = new StreamReader(new GZipStream(packed, CompressionMode.Decompress), Encoding.UTF8);
        while (lines.ReadLine() is { } line)
        {
            var tab = line.IndexOf('\t');
            yield return (line[..tab], line[(tab + 1)..]);
        }
    }

    /// <summary>Returns the keys that split the sample into so many shards with equal numbers of keys.</summary>
    public static IReadOnlyList<string> SplitKeys(int shards)
    {
        var keys = Records().Select(record => record.Key).Order(StringComparer.Ordinal).ToArray();
        return [.. Enumerable.Range(1, shards - 1).Select(shard => keys[(int)((long)keys.Length * shard / shards)])];
    }
}
