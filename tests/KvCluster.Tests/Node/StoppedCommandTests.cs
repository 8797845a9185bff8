using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Programs;

namespace KvCluster.Tests.Node;

/// <summary>Commands that are stopped before they are done. They ended with 0, so a Job of Kubernetes whose pod was evicted counted as done.</summary>
public sealed class StoppedCommandTests
{
    private const string Coordinator = "etcd=http://127.0.0.1:1";

    private static readonly CancellationToken Stopped = new(canceled: true);

    [Fact]
    public async Task Init_StoppedBeforeTheClusterExists_IsNoSuccess() =>
        Assert.Equal(ExitCodes.Unavailable, await CommandLine.InitAsync(SettingsOf(NodeSettings.InitTable, (NodeSettings.Nodes.Name, "1,2,3")), Stopped));

    [Fact]
    public async Task Snapshot_StoppedBeforeItIsComplete_IsNoSuccess()
    {
        using var folder = new TemporaryDirectory();
        Assert.Equal(ExitCodes.Unavailable, await CommandLine.SnapshotAsync(
            SettingsOf(NodeSettings.SnapshotTable, (NodeSettings.SnapshotDirectory.Name, folder.Path)), Stopped));
        Assert.Empty(Directory.GetFiles(folder.Path));
    }

    private static Settings SettingsOf(IReadOnlyList<Setting> table, (string Name, string Text) flag)
    {
        var flags = new Dictionary<string, string> { [NodeSettings.Coordinator.Name] = Coordinator, [flag.Name] = flag.Text };
        var settings = SettingsReader.Read(table, NodeSettings.Known, new SettingSources(flags, new Dictionary<string, string>()));
        Assert.Empty(settings.Mistakes);
        return settings;
    }
}
