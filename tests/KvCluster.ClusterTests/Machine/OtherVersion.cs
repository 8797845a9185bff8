using System.Diagnostics;
using System.Text;

namespace KvCluster.ClusterTests;

/// <summary>
/// Another version of kv-node: a copy of what was built, in which the attribute with the version has another first digit. Everything else is the same, so it
/// stands for the next release as far as it reports itself. `tests/nightly/upgrade` does the same with a program that was built from an older commit.
/// </summary>
internal sealed class OtherVersion : IDisposable
{
    // The version of the programs is that of this assembly.
    private const string Assembly = "KvCluster.ServiceDefaults.dll";

    // ECMA-335, II.23.3.
    private static readonly byte[] AttributeProlog = [1, 0];

    private readonly TemporaryDirectory _folder = new();

    public OtherVersion()
    {
        foreach (var file in Directory.EnumerateFiles(Path.GetDirectoryName(NodeProcess.Program)!))
            File.Copy(file, Path.Combine(_folder.Path, Path.GetFileName(file)));
        var assembly = Path.Combine(_folder.Path, Assembly);
        var built = FileVersionInfo.GetVersionInfo(assembly).ProductVersion!;
        // As long as before, because the attribute has its length in front of it.
        Version = (built[0] == '9' ? '8' : '9') + built[1..];
        byte[] attribute = [.. AttributeProlog, (byte)built.Length, .. Encoding.UTF8.GetBytes(built)];
        var bytes = File.ReadAllBytes(assembly);
        var at = bytes.AsSpan().IndexOf(attribute);
        Assert.True(at >= 0, $"{Assembly} does not contain its version {built}.");
        Encoding.UTF8.GetBytes(Version, bytes.AsSpan(at + AttributeProlog.Length + 1));
        File.WriteAllBytes(assembly, bytes);
    }

    /// <summary>What it reports as its version.</summary>
    public string Version { get; }

    /// <summary>The program.</summary>
    public string Program => Path.Combine(_folder.Path, Path.GetFileName(NodeProcess.Program));

    public void Dispose() => _folder.Dispose();
}
