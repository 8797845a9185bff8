using KvCluster.Node.Configuration;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Combinations of TLS settings that are refused. Each mistake is a line that begins with its source.</summary>
public sealed class TlsSettingsTests
{
    private const string Files = "tls-ca=ca.pem tls-cert=cert.pem tls-key=key.pem";
    private const string Node = "node=1 data=d coordinator=etcd=http://127.0.0.1:2379";

    [Theory]
    [InlineData("listen=http://127.0.0.1:7401")]
    [InlineData("listen=http://10.0.0.1:7401 allow-plaintext=true")]
    [InlineData("listen=https://0.0.0.0:7401 advertise=https://node1:7401 " + Files)]
    [InlineData("listen=https://10.0.0.1:7401 tls-client-auth=require " + Files)]
    public void Node_WithConsistentSettings_HasNoMistakes(string said) => Assert.Empty(MistakesOfNode(said));

    [Theory]
    [InlineData("listen=http://0.0.0.0:7401 advertise=http://node1:7401", "--listen: 'http://0.0.0.0:7401' is reachable from other machines without TLS")]
    [InlineData("listen=https://0.0.0.0:7401 advertise=https://node1:7401", "--listen: 'https://0.0.0.0:7401' needs tls-ca, tls-cert and tls-key.")]
    [InlineData("listen=https://127.0.0.1:7401 tls-cert=cert.pem tls-key=key.pem", "--tls-cert: also needs tls-ca.")]
    [InlineData("listen=https://127.0.0.1:7401 tls-cert=cert.pem tls-ca=ca.pem", "--tls-ca: also needs tls-key.")]
    [InlineData("listen=http://127.0.0.1:7401 " + Files, "--tls-cert: is not used, because listen is 'http://127.0.0.1:7401', without TLS.")]
    [InlineData("listen=http://127.0.0.1:7401 tls-client-auth=require", "--tls-client-auth: also needs tls-cert.")]
    [InlineData(
        "listen=https://127.0.0.1:7401 advertise=http://node1:7401 " + Files,
        "--advertise: 'http://node1:7401' and 'https://127.0.0.1:7401', of listen, must both")]
    [InlineData("listen=https://0.0.0.0:7401 " + Files, "--advertise: 'https://0.0.0.0:7401', of listen, is every address of this machine")]
    [InlineData("listen=https://[::]:7401 advertise=https://[::]:7401 " + Files, "--advertise: 'https://[::]:7401' is every address of this machine")]
    public void Node_WithInconsistentSettings_SaysSo(string said, string mistake) =>
        Assert.StartsWith(mistake, Assert.Single(MistakesOfNode(said)), StringComparison.Ordinal);

    [Fact]
    public void Router_WithPlainTextOnLoopback_MayUseTlsToNodes()
    {
        Assert.Empty(MistakesOfRouter($"listen=http://127.0.0.1:7400 nodes=https://node1:7401 {Files}"));
        Assert.Single(MistakesOfRouter($"listen=http://127.0.0.1:7400 nodes=http://127.0.0.1:7401 {Files}"));
    }

    private static IReadOnlyList<string> MistakesOfNode(string said) => MistakesOf($"{Node} {said}", NodeSettings.RunTable, NodeSettings.CheckRun);

    private static IReadOnlyList<string> MistakesOfRouter(string said) => MistakesOf(said, RouterSettings.RunTable, RouterSettings.Check);

    private static IReadOnlyList<string> MistakesOf(string said, IReadOnlyList<Setting> table, Action<Settings> check)
    {
        var flags = said.Split(' ').Select(one => one.Split('=', 2)).ToDictionary(one => one[0], one => one[1]);
        var settings = SettingsReader.Read(table, table, new SettingSources(flags, new Dictionary<string, string>()));
        check(settings);
        return settings.Mistakes;
    }
}
