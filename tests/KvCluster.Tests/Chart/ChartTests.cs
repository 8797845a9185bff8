using System.Globalization;
using System.Text.Encodings.Web;
using System.Text.Json;
using System.Text.Json.Nodes;
using System.Text.RegularExpressions;
using KvCluster.Node.Configuration;
using KvCluster.Processes;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.Chart;

/// <summary>The Helm chart: what it renders, and how it refuses wrong values.</summary>
public sealed class ChartTests
{
    private static readonly string Chart = Path.Combine(Tools.Repository(), "helm", "kvcluster");
    private static readonly string Here = Path.Combine(Tools.Repository(), "tests", "KvCluster.Tests", "Chart");

    private static readonly JsonSerializerOptions SchemaFormat = new() { WriteIndented = true, Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping };

    /// <summary>If set to 1, the golden files and the schema of settings are written anew, and the difference is for review.</summary>
    private static bool WritesGolden => Environment.GetEnvironmentVariable("KV_GOLDEN") == "1";

    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("single")]
    public async Task Template_WithValues_IsTheGoldenFile(string name)
    {
        var (exitCode, rendered, error) = await HelmAsync("template", "store", Chart, "--namespace", "data", "--values", Path.Combine(Here, "values", name + ".yaml"));

        Assert.True(exitCode == 0, error);
        await AssertGoldenAsync(name + ".yaml", rendered);
    }

    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("single")]
    public async Task Notes_WithValues_AreTheGoldenFile(string name) =>
        await AssertGoldenAsync(name + ".notes.txt", await NotesAsync("--values", Path.Combine(Here, "values", name + ".yaml")));

    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("single")]
    public async Task Lint_WithValues_FindsNothing(string name)
    {
        var (exitCode, output, error) = await HelmAsync("lint", "--strict", Chart, "--values", Path.Combine(Here, "values", name + ".yaml"));

        Assert.True(exitCode == 0, output + error);
    }

    [ToolTheory("helm")]
    [InlineData("node.count=2", "node.count is 2, fewer than cluster.replicationFactor, 3")]
    [InlineData("node.count=0", "at '/node/count': minimum: got 0, want 1")]
    [InlineData("nodes.count=4", "additional properties 'nodes' not allowed")]
    [InlineData("node.storage.size=20GB", "at '/node/storage/size': '20GB' does not match pattern")]
    [InlineData("node.settings.listen=x", "node.settings.listen: the chart sets this itself")]
    [InlineData("node.settings.stop-grace-seconds=9", "node.settings.stop-grace-seconds: the chart sets this itself, five seconds less than node.terminationGracePeriodSeconds")]
    [InlineData("node.terminationGracePeriodSeconds=6", "at '/node/terminationGracePeriodSeconds': minimum: got 6, want 10")]
    [InlineData("networkPolicy.monitoring={prometheus}", "at '/networkPolicy/monitoring/0': got string, want object")]
    [InlineData("node.settings.tls-cert=x", "node.settings.tls-cert: the chart sets this itself")]
    [InlineData("router.settings.config=x", "router.settings.config: the chart sets this itself")]
    [InlineData("node.env[0].name=KVCLUSTER_LOG_FORMAT", "node.env: KVCLUSTER_LOG_FORMAT would override the settings file. Set node.settings.log-format instead")]
    [InlineData("router.env[0].value=x", "at '/router/env/0': missing property 'name'")]
    [InlineData("node.settings.jurnal-retention-mib=512", "at '/node/settings': additional properties 'jurnal-retention-mib' not allowed")]
    [InlineData("node.settings.nodes=x", "at '/node/settings': additional properties 'nodes' not allowed")]
    [InlineData("router.settings.connections-max=15", "at '/router/settings/connections-max': minimum: got 15, want 16")]
    [InlineData("router.settings.call-memory-mib=a", "at '/router/settings/call-memory-mib': got string, want integer")]
    [InlineData("node.settings.log-format=xml", "at '/node/settings/log-format': value must be one of 'text', 'json'")]
    [InlineData("router.settings.log-level=info", "at '/router/settings/log-level': value must be one of 'trace', 'debug', 'information', 'warning', 'error'")]
    [InlineData("image.pullPolicy=always", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'")]
    [InlineData("cluster.splitAt={b,a}", "cluster.splitAt: keys must be in ascending order, but 'a' does not come after 'b'")]
    [InlineData("cluster.name=a/b", "at '/cluster/name': 'a/b' does not match pattern")]
    [InlineData("etcd.count=2", "at '/etcd/count': value must be one of 1, 3, 5")]
    [InlineData("etcd.enabled=false", "etcd.enabled is false and externalEtcd.endpoints is empty")]
    [InlineData("externalEtcd.endpoints={https://etcd:2379}", "etcd.enabled is true and externalEtcd.endpoints names an etcd too")]
    [InlineData("externalEtcd.tlsSecret=a", "are for externalEtcd.endpoints, which is empty")]
    [InlineData("externalEtcd.user=a", "are for externalEtcd.endpoints, which is empty")]
    [InlineData("etcd.enabled=false,externalEtcd.endpoints={http://a:2379},externalEtcd.tlsSecret=a", "'http://a:2379' does not begin with https://")]
    [InlineData("etcd.enabled=false,externalEtcd.endpoints={http://a:2379},externalEtcd.clientCertificate=true", "externalEtcd.clientCertificate requires externalEtcd.tlsSecret")]
    [InlineData("tls.enabled=true,tls.nodeSecret=a,tls.routerSecret=b,cluster.name=my_cluster", "'my_cluster' cannot be part of a DNS name")]
    [InlineData("externalEtcd.endpoints={etcd}", "at '/externalEtcd/endpoints/0': 'etcd' does not match pattern")]
    [InlineData("tls.enabled=true", "tls.enabled requires tls.nodeSecret and tls.routerSecret, or tls.certManager.enabled")]
    [InlineData("tls.certManager.enabled=true", "tls.certManager.enabled is set without tls.enabled")]
    public async Task Template_WithAMistake_SaysWhichValueAndWhy(string value, string message)
    {
        var (exitCode, _, error) = await HelmAsync("template", "store", Chart, "--set", value);

        Assert.NotEqual(0, exitCode);
        Assert.Contains(message, error, StringComparison.Ordinal);
    }

    /// <summary>Any name was a setting to the chart, and only the program found a wrong one, when it did not start.</summary>
    [Theory]
    [InlineData("node")]
    [InlineData("router")]
    public async Task Schema_OfSettings_IsThatOfTheProgram(string program)
    {
        var file = Path.Combine(Chart, "values.schema.json");
        var schema = JsonNode.Parse(await File.ReadAllTextAsync(file))!;
        var values = schema["properties"]![program]!["properties"]!;
        var expected = SettingsText.Schema(program == "node" ? NodeSettings.RunTable : RouterSettings.RunTable);
        if (WritesGolden)
        {
            values["settings"] = expected.DeepClone();
            await File.WriteAllTextAsync(file, schema.ToJsonString(SchemaFormat) + "\n");
        }

        Assert.Equal(expected.ToJsonString(SchemaFormat), values["settings"]!.ToJsonString(SchemaFormat));
    }

    [ToolTheory("helm")]
    [InlineData("none")]
    [InlineData("require")]
    public async Task Template_WithClientAuth_SetsItForNodesAndRouters(string clientAuth)
    {
        var config = await TemplateAsync("config", "--set", "tls.enabled=true,tls.nodeSecret=n,tls.routerSecret=r,tls.clientAuth=" + clientAuth);

        Assert.Equal([clientAuth, clientAuth], Values(config, "tls-client-auth: (.+)"));
    }

    /// <summary>With TLS every program exited with 2, because its address was http. The tests compared what was rendered, and no program read it.</summary>
    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("single")]
    public async Task Settings_WithValues_AreAcceptedByThePrograms(string name)
    {
        string[] values = ["--values", Path.Combine(Here, "values", name + ".yaml")];
        var config = await TemplateAsync("config", values);
        var variables = new Dictionary<string, string>
        {
            [NodeSettings.Node.Variable] = "1",
            [NodeSettings.Advertise.Variable] = Assert.Single(Values(await TemplateAsync("node", values), "name: KVCLUSTER_ADVERTISE, value: \"(.+)\"}")).Replace("$(KVCLUSTER_NODE)", "1", StringComparison.Ordinal),
            [NodeSettings.BootstrapNodes.Variable] = Assert.Single(Values(config, "bootstrap-nodes: \"(.+)\"")),
        };

        Assert.Empty(MistakesOf(config, "node", NodeSettings.RunTable, NodeSettings.Known, NodeSettings.CheckRun, variables));
        Assert.Empty(MistakesOf(config, "router", RouterSettings.RunTable, RouterSettings.RunTable, RouterSettings.Check, []));
    }

    [ToolFact("helm")]
    public async Task NodeCount_Changed_RestartsNoPod()
    {
        var (three, five) = (await TemplateAsync("node", "--set", "node.count=3"), await TemplateAsync("node", "--set", "node.count=5"));

        Assert.Equal(three.Replace("replicas: 3", "replicas: 5", StringComparison.Ordinal), five);
    }

    [ToolTheory("helm")]
    [InlineData("node")]
    [InlineData("router")]
    public async Task Setting_Changed_RestartsThePodsOfItsProgramOnly(string part)
    {
        foreach (var other in (string[])["node", "router"])
        {
            var (before, after) = (await TemplateAsync(other), await TemplateAsync(other, "--set", $"{part}.settings.connections-max=1000"));

            Assert.Equal(other != part, before == after);
            Assert.Equal(Regex.Replace(before, "checksum/settings: .+", ""), Regex.Replace(after, "checksum/settings: .+", ""));
        }
    }

    /// <summary>
    /// Helm looks for the number of nodes that there are. A tool that only renders the chart finds none, and its upgrade may remove nodes, so their replicas must have moved.
    /// </summary>
    [ToolFact("helm")]
    public async Task Leave_RenderedWithoutKubernetes_NeedsAnAnswer() =>
        Assert.DoesNotContain("--skip-if-silent", await TemplateAsync("leave"), StringComparison.Ordinal);

    [ToolFact("helm")]
    public async Task NetworkPolicy_WithoutMonitoring_ClosesTheAdminPort()
    {
        var policy = await TemplateAsync("networkpolicy", "--set", "networkPolicy.enabled=true,networkPolicy.clients[0].podSelector.matchLabels.team=orders");

        Assert.Contains("team: orders", policy, StringComparison.Ordinal);
        Assert.DoesNotContain("port: admin", policy, StringComparison.Ordinal);
    }

    [ToolFact("helm")]
    public async Task NetworkPolicy_WithMonitoring_OpensTheAdminPortForItOnly()
    {
        var policy = await TemplateAsync(
            "networkpolicy", "--set", "networkPolicy.enabled=true,networkPolicy.clients[0].podSelector.matchLabels.team=orders,networkPolicy.monitoring[0].podSelector.matchLabels.team=operations");

        var rules = policy.Split("    - from:");
        Assert.Contains("team: operations", Assert.Single(rules, rule => rule.Contains("port: admin", StringComparison.Ordinal)), StringComparison.Ordinal);
        Assert.DoesNotContain("port: admin", Assert.Single(rules, rule => rule.Contains("team: orders", StringComparison.Ordinal)), StringComparison.Ordinal);
    }

    [ToolTheory("helm")]
    [InlineData(10, "5")]
    [InlineData(30, "25")]
    [InlineData(600, "595")]
    public async Task Node_WithATerminationGracePeriod_HasFiveSecondsLessToStop(int seconds, string stopGrace)
    {
        string[] values = ["--set", $"node.terminationGracePeriodSeconds={seconds}"];

        Assert.Equal([seconds.ToString(CultureInfo.InvariantCulture)], Values(await TemplateAsync("node", values), "terminationGracePeriodSeconds: (.+)"));
        Assert.Equal([stopGrace], Values(await TemplateAsync("config", values), "stop-grace-seconds: (.+)"));
    }

    [ToolFact("helm")]
    public async Task Router_WithItsOwnStopGrace_GetsThatPlusItsDelay()
    {
        var router = await TemplateAsync("router", "--set", "router.stopDelaySeconds=7,router.settings.stop-grace-seconds=40");

        Assert.Equal(["52"], Values(router, "terminationGracePeriodSeconds: (.+)"));
    }

    [ToolTheory("helm")]
    [InlineData("default", null)]
    [InlineData("single", "my-router")]
    [InlineData("everything", "store-kvcluster-router-tls")]
    public async Task TryIt_WithValues_IsARestrictedPodWithItsCertificates(string name, string? secret)
    {
        var notes = await NotesAsync("--values", Path.Combine(Here, "values", name + ".yaml"));

        using var overrides = JsonDocument.Parse(Assert.Single(Values(notes, "--overrides='(.+)' -- status")));
        var pod = overrides.RootElement.GetProperty("spec");
        Assert.True(pod.GetProperty("securityContext").GetProperty("runAsNonRoot").GetBoolean());
        Assert.Equal("RuntimeDefault", pod.GetProperty("securityContext").GetProperty("seccompProfile").GetProperty("type").GetString());
        var container = Assert.Single(pod.GetProperty("containers").EnumerateArray());
        Assert.Equal("kv", container.GetProperty("name").GetString());
        Assert.False(container.GetProperty("securityContext").GetProperty("allowPrivilegeEscalation").GetBoolean());
        Assert.Equal("ALL", Assert.Single(container.GetProperty("securityContext").GetProperty("capabilities").GetProperty("drop").EnumerateArray()).GetString());
        var settings = container.GetProperty("env").EnumerateArray().ToDictionary(one => one.GetProperty("name").GetString()!, one => one.GetProperty("value").GetString()!);
        Assert.Equal($"{(secret is null ? "http" : "https")}://store-kvcluster.data.svc.cluster.local:7400", settings["KV_ENDPOINT"]);
        Assert.Equal(secret is not null, pod.TryGetProperty("volumes", out var volumes));
        if (secret is null)
            return;
        Assert.Equal(secret, Assert.Single(volumes.EnumerateArray()).GetProperty("secret").GetProperty("secretName").GetString());
        Assert.Equal("/tls", Assert.Single(container.GetProperty("volumeMounts").EnumerateArray()).GetProperty("mountPath").GetString());
        Assert.Equal(("/tls/ca.crt", "/tls/tls.crt", "/tls/tls.key"), (settings["KVCLUSTER_TLS_CA"], settings["KVCLUSTER_TLS_CERT"], settings["KVCLUSTER_TLS_KEY"]));
    }

    [ToolTheory("helm")]
    [InlineData("tls.enabled=false", "tls.enabled is false")]
    [InlineData("tls.enabled=true", "own etcd: it speaks plain text", "networkPolicy.enabled admits only its own members")]
    [InlineData("tls.enabled=true,networkPolicy.enabled=true", "own etcd: it speaks plain text", "can still be read on its way")]
    [InlineData("tls.enabled=true,etcd.enabled=false,externalEtcd.endpoints={https://etcd:2379}")]
    [InlineData("tls.enabled=true,etcd.enabled=false,externalEtcd.endpoints={https://etcd:2379},networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true", "networkPolicy.monitoring is empty")]
    public async Task Notes_OnWhatIsOpen_WarnOfThatAlone(string values, params string[] warnings)
    {
        var notes = await NotesAsync("--set", "tls.nodeSecret=n,tls.routerSecret=r," + values);

        Assert.Equal(warnings.Length > 0 ? 1 : 0, Regex.Count(notes, "WARNING"));
        Assert.All(warnings, warning => Assert.Contains(warning, notes, StringComparison.Ordinal));
    }

    private static async Task AssertGoldenAsync(string name, string rendered)
    {
        var golden = Path.Combine(Here, "golden", name);
        if (WritesGolden)
            await File.WriteAllTextAsync(golden, rendered + "\n");
        Assert.Equal((await File.ReadAllTextAsync(golden)).TrimEnd(), rendered);
    }

    // What a program says about its file in the rendered ConfigMap.
    private static IReadOnlyList<string> MistakesOf(
        string config, string program, IReadOnlyList<Setting> table, IReadOnlyList<Setting> known, Action<Settings> check, Dictionary<string, string> variables)
    {
        using var folder = new TemporaryDirectory();
        var file = Path.Combine(folder.Path, "settings.yaml");
        File.WriteAllText(file, Assert.Single(Values(config, $@"  {program}\.yaml: \|\n((?:    .+\n?)+)")));
        var settings = SettingsReader.Read(table, known, new SettingSources(new Dictionary<string, string> { [CommonSettings.Config.Name] = file }, variables));
        check(settings);
        return settings.Mistakes;
    }

    // The content of the pattern's group at every match.
    private static IEnumerable<string> Values(string text, string pattern) => Regex.Matches(text, pattern).Select(match => match.Groups[1].Value);

    // The rendered content of one file of the chart.
    private static async Task<string> TemplateAsync(string file, params IEnumerable<string> arguments)
    {
        var (exitCode, rendered, error) = await HelmAsync(["template", "store", Chart, "--show-only", $"templates/{file}.yaml", .. arguments]);
        Assert.True(exitCode == 0, error);
        return rendered;
    }

    // Helm shows the notes only when it installs, so a copy of the chart gets a template that contains them.
    private static async Task<string> NotesAsync(params IEnumerable<string> arguments)
    {
        using var copy = new TemporaryDirectory();
        Directory.CreateDirectory(Path.Combine(copy.Path, "templates"));
        foreach (var file in (string[])["Chart.yaml", "values.yaml", "values.schema.json", .. Directory.EnumerateFiles(Path.Combine(Chart, "templates")).Select(path => Path.GetRelativePath(Chart, path))])
            File.Copy(Path.Combine(Chart, file), Path.Combine(copy.Path, file));
        await File.WriteAllTextAsync(Path.Combine(copy.Path, "templates", "shown.yaml"), "notes: |\n{{ include (print $.Template.BasePath \"/NOTES.txt\") . | indent 2 }}\n");
        var (exitCode, rendered, error) = await HelmAsync(["template", "store", copy.Path, "--namespace", "data", "--show-only", "templates/shown.yaml", .. arguments]);
        Assert.True(exitCode == 0, error);
        var notes = rendered[(rendered.IndexOf("notes: |\n", StringComparison.Ordinal) + "notes: |\n".Length)..];
        return string.Join('\n', notes.Split('\n').Select(line => line.Length > 2 ? line[2..] : "")).Trim();
    }

    private static Task<(int ExitCode, string Output, string Error)> HelmAsync(params IEnumerable<string> arguments) =>
        Tools.RunAsync(Tools.Find("helm")!, [.. arguments, "--kube-version", "1.34.0"]);
}
