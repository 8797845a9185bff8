using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>The settings file of one node of a cluster, as on its machine: it has all options of the node, and its admin port.</summary>
/// <param name="node">The node.</param>
internal sealed class SettingsOnDisk(int node) : IDisposable
{
    private readonly TemporaryDirectory _folder = new();
    private readonly int _port = FreePorts.Ten();

    /// <summary>The file.</summary>
    public string Path => System.IO.Path.Combine(_folder.Path, "node.yaml");

    /// <summary>The address of the admin port.</summary>
    public string Admin => $"http://127.0.0.1:{_port}";

    /// <summary>Another address that is free.</summary>
    public string OtherAdmin => $"http://127.0.0.1:{_port + 1}";

    /// <summary>Before the first start of a process: the node is started with the file.</summary>
    public void Prepare(NodeProcess process)
    {
        if (process.Node != node)
            return;
        File.WriteAllLines(Path, [.. process.Settings, $"admin: {Admin}"]);
        process.Options = ["--config", Path];
    }

    /// <summary>Replaces a part of the file, as somebody does with an editor.</summary>
    public void Edit(string part, string with)
    {
        var text = File.ReadAllText(Path);
        Assert.Contains(part, text, StringComparison.Ordinal);
        File.WriteAllText(Path, text.Replace(part, with, StringComparison.Ordinal));
    }

    /// <summary>Adds a line.</summary>
    public void Add(string line) => File.AppendAllLines(Path, [line]);

    /// <summary>A shell on the node's machine.</summary>
    public OperatorShell On(OperatorShell shell) => shell.With("KVCLUSTER_CONFIG", Path).With("ADMIN", Admin);

    public void Dispose() => _folder.Dispose();
}
