using KvCluster.Node.Configuration;
using KvCluster.Replication.Protocol;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.Storage.Context;

namespace KvCluster.Tests.Node;

/// <summary>The settings of a node, and what those of a router have in common with them.</summary>
public sealed class NodeSettingsTests
{
    private static readonly Dictionary<string, string> Least = new()
    {
        ["node"] = "2",
        ["data"] = "data",
        ["listen"] = "http://127.0.0.1:7401",
        ["coordinator"] = "etcd=http://127.0.0.1:2379,http://127.0.0.1:2380",
    };

    [Fact]
    public void Options_WithOnlyRequiredSettings_AreTheDefaults()
    {
        var settings = Run([]);
        Assert.Empty(settings.Mistakes);
        var options = NodeSettings.OptionsOf(settings);
        var defaults = new NodeOptions { Node = new(2), DataDirectory = Path.GetFullPath("data"), Listen = "http://127.0.0.1:7401" };
        Assert.Equal(defaults with { Replication = options.Replication, Storage = options.Storage }, options);
        Assert.Equal(new ReplicationOptions().DigestIntervalUs, options.Replication.DigestIntervalUs);
        Assert.Equal(new StoreOptions().RetainedJournalBytes, options.Storage.RetainedJournalBytes);
        Assert.Equal(["http://127.0.0.1:2379", "http://127.0.0.1:2380"], NodeSettings.EtcdOptionsOf(settings).Endpoints);
    }

    [Fact]
    public void Options_WithALongerGrace_GiveTheTimeToTheDrain()
    {
        var options = NodeSettings.OptionsOf(Run(new() { ["stop-grace-seconds"] = "30" }));
        Assert.Equal((TimeSpan.FromSeconds(28.5), TimeSpan.FromSeconds(26)), (options.StopTimeMax, options.DrainTimeMax));
    }

    [Theory]
    [InlineData("kvcluster-node-0", 1)]
    [InlineData("kv-11", 12)]
    public void Node_FromThePodsName_IsItsNumberPlusOne(string name, uint node)
    {
        var settings = Run(new() { ["pod-name"] = name, ["node"] = null });
        Assert.Empty(settings.Mistakes);
        Assert.Equal(new NodeId(node), NodeSettings.OptionsOf(settings).Node);
    }

    [Fact]
    public void Bootstrap_WithShards_IsTheNewCluster()
    {
        var created = NodeSettings.OptionsOf(Run(new() { ["bootstrap-nodes"] = "1, 2,3,4", ["split-at"] = "f,p" })).Bootstrap!;
        Assert.Equal([new NodeId(1), new(2), new(3), new(4)], created.Nodes);
        Assert.Equal((3, 2), (created.ReplicationFactor, created.SplitKeys.Count));
    }

    [Theory]
    [InlineData("node", "0", "--node: '0' is not an id; ids are numbers from 1.")]
    [InlineData("pod-name", "kv-1", "--node: one of node and pod-name must say which node it is.")]
    [InlineData("pod-name", "kv", "--pod-name: 'kv' does not end with the number of a pod, as kvcluster-node-0 does.")]
    [InlineData("coordinator", "http://127.0.0.1:1", "--coordinator: 'http://127.0.0.1:1' is not of the form etcd=http://host:port,http://host:port.")]
    [InlineData("coordinator", "etcd=https://h:1,http://h:2", "--coordinator: 'http://h:2' is not of the form https://host:port.")]
    [InlineData("coordinator-ca", "ca.pem", "--coordinator-ca: is for a coordinator at https:// only.")]
    [InlineData("coordinator-user", "ann", "--coordinator-user: coordinator-user and coordinator-password-file must be given together.")]
    [InlineData("coordinator", "etcd=http://ann:secret@h:1", "--coordinator: '...@h:1' is not of the form http://host:port.")]
    [InlineData("admin-hosts", "kv.example.com,http://b", "--admin-hosts: 'http://b' is not a host name.")]
    [InlineData("cluster", "a b", "--cluster: 'a b': a name has 1 to 64 letters, digits, '-', '_' and '.'.")]
    [InlineData("bootstrap-nodes", "1,1", "--bootstrap-nodes: '1,1' names a node twice.")]
    [InlineData("split-at", "b,a", "--split-at: keys must be in ascending order.")]
    [InlineData("split-at", "a,b", "--split-at: has no effect without bootstrap-nodes.")]
    [InlineData("replicas", "3", "--replicas: has no effect without bootstrap-nodes.")]
    [InlineData("tls-cert", "cert.pem", "--tls-cert: also needs tls-ca.")]
    [InlineData("log-format", "xml", "--log-format: 'xml' is not one of text, json.")]
    [InlineData("log-level", "info", "--log-level: 'info' is not one of trace, debug, information, warning, error.")]
    [InlineData("stop-grace-seconds", "1", "--stop-grace-seconds: '1' is not a number from 2 to 3600.")]
    [InlineData("admin", "https://127.0.0.1:7480", "--admin: 'https://127.0.0.1:7480' is not of the form http://host:port.")]
    public void Run_WithAMistake_SaysIt(string name, string value, string expected) => Assert.Contains(expected, Run(new() { [name] = value }).Mistakes);

    [Theory]
    [InlineData("listen-peers=http://127.0.0.1:7501")]
    [InlineData("listen-peers=http://127.0.0.1:0")]
    [InlineData("listen-peers=http://127.0.0.1:7501 advertise-peers=http://node2:7501")]
    [InlineData("listen-peers=http://0.0.0.0:7501 allow-plaintext=true advertise-peers=http://node2:7501")]
    [InlineData("listen=http://127.0.0.1:65500 listen-peers=http://127.0.0.1:7501")]
    [InlineData("listen=http://127.0.0.1:65435")]
    public void Peers_WithConsistentSettings_HaveNoMistakes(string said) => Assert.Empty(Run(Said(said)).Mistakes);

    [Theory]
    [InlineData(
        "listen-peers=https://127.0.0.1:7501",
        "--listen-peers: 'https://127.0.0.1:7501' and 'http://127.0.0.1:7401', of listen, must both be http:// or both https://.")]
    [InlineData(
        "advertise-peers=https://node2:7501",
        "--advertise-peers: 'https://node2:7501' and 'http://127.0.0.1:7401', of listen, must both be http:// or both https://.")]
    [InlineData(
        "advertise-peers=http://0.0.0.0:7501",
        "--advertise-peers: 'http://0.0.0.0:7501' is every address of this machine; give the one where other nodes reach this node.")]
    [InlineData(
        "advertise-peers=http://[::]:7501",
        "--advertise-peers: 'http://[::]:7501' is every address of this machine; give the one where other nodes reach this node.")]
    [InlineData(
        "listen=http://127.0.0.1:65436",
        "--listen-peers: there is no port 100 above that of 'http://127.0.0.1:65436', of listen; give an address to listen on for other nodes.")]
    [InlineData(
        "listen-peers=http://127.0.0.1:7401", "--listen-peers: 'http://127.0.0.1:7401' is also the port of listen; clients and nodes need separate ports.")]
    [InlineData(
        "listen-peers=http://127.0.0.2:7401", "--listen-peers: 'http://127.0.0.2:7401' is also the port of listen; clients and nodes need separate ports.")]
    [InlineData("listen-peers=http://10.0.0.1:7501",
        "--listen-peers: 'http://10.0.0.1:7501' is reachable from other machines without TLS; use https://, or set allow-plaintext if the network itself is "
        + "trusted.")]
    [InlineData("listen-peers=node2:7501", "--listen-peers: 'node2:7501' is not of the form http://host:port or https://host:port.")]
    [InlineData(
        "advertise-peers=http://node2:7501/path", "--advertise-peers: 'http://node2:7501/path' is not of the form http://host:port or https://host:port.")]
    public void Peers_WithAMistake_ReportIt(string said, string expected) => Assert.Equal([expected], Run(Said(said)).Mistakes);

    [Fact]
    public void Peers_WithSeveralMistakes_ReportAllOfThem()
    {
        var mistakes = Run(Said("listen-peers=https://127.0.0.1:7401 advertise-peers=https://0.0.0.0:7501")).Mistakes;
        Assert.Equal(
            ["--listen-peers", "--advertise-peers", "--advertise-peers", "--listen-peers"],
            mistakes.Select(mistake => mistake[..mistake.IndexOf(':', StringComparison.Ordinal)]));
    }

    [Fact]
    public void Replicas_MoreThanNodes_AreAMistake() =>
        Assert.Contains(
            "--replicas: 3 replicas of a shard need as many nodes, but bootstrap-nodes names 2.",
            Run(new() { ["bootstrap-nodes"] = "1,2", ["replicas"] = "3" }).Mistakes);

    [Theory]
    [InlineData("a_b", true)]
    [InlineData("a..b", true)]
    [InlineData("-a", true)]
    [InlineData("a.b-2", false)]
    public void ClusterName_UnusableInCertificates_IsAMistakeWithTls(string name, bool isMistake)
    {
        Assert.Empty(Run(new() { ["cluster"] = name }).Mistakes);
        var settings = Run(new() { ["cluster"] = name, ["listen"] = "https://127.0.0.1:7401", ["tls-cert"] = "c", ["tls-key"] = "k", ["tls-ca"] = "a" });
        Assert.Equal(isMistake, settings.Mistakes.Any(mistake => mistake.Contains($"'{name}' cannot be used in certificates", StringComparison.Ordinal)));
        Assert.Equal(isMistake, settings.Mistakes.Count > 0);
    }

    [Theory]
    [InlineData("https://127.0.0.1:7400", "has no TLS")]
    [InlineData("http://0.0.0.0:7400", "reachable from other machines without TLS")]
    public void Coordinator_ListeningOnOtherMachinesWithoutTls_IsRefused(string listen, string expected)
    {
        var sources = new SettingSources(new Dictionary<string, string> { ["data"] = "data", ["listen"] = listen }, new Dictionary<string, string>());
        var settings = SettingsReader.Read(NodeSettings.CoordinatorTable, NodeSettings.Known, sources);
        NodeSettings.CheckCoordinator(settings);
        Assert.Contains(expected, Assert.Single(settings.Mistakes), StringComparison.Ordinal);
    }

    [Fact]
    public void Settings_OfAProgram_HaveDistinctNames()
    {
        Assert.Distinct(NodeSettings.Known.Select(setting => setting.Name));
        Assert.Distinct(RouterSettings.RunTable.Select(setting => setting.Name));
    }

    [Fact]
    public void Defaults_PassTheirOwnValidation() => Assert.All(
        NodeSettings.Known.Concat(RouterSettings.RunTable).Where(setting => setting.Default is not null),
        setting => Assert.NotNull(setting.Read(setting.Default!)));

    private static Dictionary<string, string?> Said(string flags) =>
        flags.Split(' ').Select(one => one.Split('=', 2)).ToDictionary(one => one[0], string? (one) => one[1]);

    private static Settings Run(Dictionary<string, string?> flags)
    {
        var all = new Dictionary<string, string>(Least);
        foreach (var (name, value) in flags)
        {
            if (value is null)
                all.Remove(name);
            else
                all[name] = value;
        }
        var settings = SettingsReader.Read(NodeSettings.RunTable, NodeSettings.Known, new SettingSources(all, new Dictionary<string, string>()));
        NodeSettings.CheckRun(settings);
        return settings;
    }
}
