using System.Globalization;
using KvCluster.Internal.V1;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// Nodes started with the data or etcd of others, beside five client processes whose histories must be linearizable. Each is refused with one line
/// and an exit code, nothing else is disturbed, and the node works when it is started correctly.
/// </summary>
[Trait("Turn", "4")]
public sealed class IdentityTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 100;
    private const int Unavailable = 3;
    private const int OtherFormat = 4;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task Start_WithAnotherNodesDirectory_IsRefusedAndLeavesBothUsable()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var node = cluster.Node(2);
        await node.KillAsync();
        await AssertRefusedAsync(node, Unavailable, "in use", "--data", cluster.Node(3).Data);
        var copy = Path.Combine(cluster.Folder, "copy-of-3");
        await cluster.Node(3).KillAsync();
        EtcdProcesses.CopyFolder(cluster.Node(3).Data, copy);
        cluster.Node(3).Start();
        await AssertRefusedAsync(node, Unavailable, "belongs to node 3,", "--data", copy);
        node.Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task Start_WithADirectoryOrAClusterOfAnotherFormat_IsRefused()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var node = cluster.Node(2);
        await node.KillAsync();
        var format = Path.Combine(node.Data, "format");
        var text = await File.ReadAllTextAsync(format);
        await File.WriteAllTextAsync(format, "kvcluster node 9");
        await AssertRefusedAsync(node, OtherFormat, "its format is 'kvcluster node 9'");
        await File.WriteAllTextAsync(format, text);

        const string key = "/kvcluster/local/cluster";
        var record = await cluster.Etcd.ControlAsync("get", "--print-value-only", key);
        var newer = Google.Protobuf.JsonParser.Default.Parse<ClusterRecord>(record);
        newer.FormatLevel = 99;
        await cluster.Etcd.ControlAsync("put", key, Google.Protobuf.JsonFormatter.Default.Format(newer));
        await AssertRefusedAsync(node, OtherFormat, "format level 99");
        await cluster.Etcd.ControlAsync("put", key, record);
        node.Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task Start_AgainstAnotherClustersEtcd_IsRefusedAndLeavesBothUsable()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var node = cluster.Node(2);
        await node.KillAsync();
        await using var etcd = await EtcdProcesses.StartAsync();
        var coordinator = "etcd=" + string.Join(',', etcd.Endpoints);
        await FaultCluster.CreateAsync(["init", "--coordinator", coordinator, "--nodes", "1,2,3"]);
        var before = await etcd.ControlAsync("get", "--prefix", "");
        await AssertRefusedAsync(node, Unavailable, "belongs to another cluster", "--coordinator", coordinator);
        Assert.Equal(before, await etcd.ControlAsync("get", "--prefix", ""));
        node.Start();
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    // Starts the node as usual, except for one option.
    private static async Task AssertRefusedAsync(NodeProcess node, int expected, string reason, string option = "", string value = "")
    {
        var (exitCode, _, error) = await Tools.RunAsync(NodeProcess.Program, node.CommandWith(option, value)).WaitAsync(Eventually.Limit);
        Assert.True(exitCode == expected, string.Create(CultureInfo.InvariantCulture, $"exit code {exitCode}: {error}"));
        Assert.Contains(reason, error, StringComparison.Ordinal);
        Assert.StartsWith("kv-node: ", error, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', error);
    }
}
