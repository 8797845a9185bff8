using System.Globalization;
using System.Text.Encodings.Web;
using System.Text.Json;
using System.Text.Json.Nodes;
using System.Text.RegularExpressions;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Processes;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.Deploy;

/// <summary>The Helm chart: what it renders, and how it refuses wrong values.</summary>
public sealed class ChartTests
{
    // The annotation with a pod's settings file.
    private const string SettingsOfAPod = @"kvcluster\.dev/settings: \|\n((?: {10}.+\n?)+)";

    private static readonly string Chart = Path.Combine(Tools.Repository(), "helm", "kvcluster");
    private static readonly string Here = Path.Combine(Tools.Repository(), "tests", "KvCluster.Tests", "Deploy");

    /// <summary>Values that the nightly script does not install, and why.</summary>
    private static readonly Dictionary<string, string> NotInstalled = new()
    {
        ["clusterDomain"] = "the Kubernetes of the script has one domain",
    };

    /// <summary>Values whose entries are the user's: each counts as one.</summary>
    private static readonly Regex FreeForm = new(@"\.(settings|annotations|labels|nodeSelector|affinity|requests|limits)$");

    private static readonly JsonSerializerOptions SchemaFormat = new() { WriteIndented = true, Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping };

    /// <summary>If set to 1, the golden files and the schema of settings are written anew, and the difference is for review.</summary>
    private static bool WritesGolden => Environment.GetEnvironmentVariable("KV_GOLDEN") == "1";

    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("plain")]
    [InlineData("single")]
    public async Task Template_WithValues_IsTheGoldenFile(string name)
    {
        var (exitCode, rendered, error) = await HelmAsync(
            "template", "store", Chart, "--namespace", "data", "--values", Path.Combine(Here, "values", name + ".yaml"));

        Assert.True(exitCode == 0, error);
        await AssertGoldenAsync(name + ".yaml", rendered);
    }

    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("plain")]
    [InlineData("single")]
    public async Task Notes_WithValues_AreTheGoldenFile(string name) =>
        await AssertGoldenAsync(name + ".notes.txt", await NotesAsync("--values", Path.Combine(Here, "values", name + ".yaml")));

    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("plain")]
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
    [InlineData(
        "node.settings.stop-grace-seconds=9",
        "node.settings.stop-grace-seconds: the chart sets this itself, five seconds less than node.terminationGracePeriodSeconds")]
    [InlineData("node.terminationGracePeriodSeconds=6", "at '/node/terminationGracePeriodSeconds': minimum: got 6, want 10")]
    [InlineData("networkPolicy.monitoring={prometheus}", "at '/networkPolicy/monitoring/0': got string, want object")]
    [InlineData("node.settings.tls-cert=x", "node.settings.tls-cert: the chart sets this itself")]
    [InlineData("router.settings.config=x", "router.settings.config: the chart sets this itself")]
    [InlineData(
        "node.env[0].name=KVCLUSTER_LOG_FORMAT", "node.env: KVCLUSTER_LOG_FORMAT would override the settings file. Set node.settings.log-format instead")]
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
    [InlineData("etcd.snapshots.schedule=daily", "at '/etcd/snapshots/schedule': 'daily' does not match pattern")]
    [InlineData("etcd.snapshots.keep=0", "at '/etcd/snapshots/keep': minimum: got 0, want 1")]
    [InlineData("etcd.enabled=false", "etcd.enabled is false and externalEtcd.endpoints is empty")]
    [InlineData("externalEtcd.endpoints={https://etcd:2379}", "etcd.enabled is true and externalEtcd.endpoints names an etcd too")]
    [InlineData("externalEtcd.tlsSecret=a", "are for externalEtcd.endpoints, which is empty")]
    [InlineData("externalEtcd.user=a", "are for externalEtcd.endpoints, which is empty")]
    [InlineData("etcd.enabled=false,externalEtcd.endpoints={http://a:2379},externalEtcd.tlsSecret=a", "'http://a:2379' does not begin with https://")]
    [InlineData(
        "etcd.enabled=false,externalEtcd.endpoints={http://a:2379},externalEtcd.clientCertificate=true",
        "externalEtcd.clientCertificate requires externalEtcd.tlsSecret")]
    [InlineData("tls.enabled=true,tls.nodeSecret=a,tls.routerSecret=b,cluster.name=my_cluster", "'my_cluster' cannot be part of a DNS name")]
    [InlineData("externalEtcd.endpoints={etcd}", "at '/externalEtcd/endpoints/0': 'etcd' does not match pattern")]
    [InlineData("tls.nodeSecret=a", "tls.nodeSecret and tls.routerSecret require each other")]
    [InlineData("tls.routerNames={a/b}", "at '/tls/routerNames/0': 'a/b' does not match pattern")]
    [InlineData("tls.enabled=false,tls.certManager.enabled=true", "tls.certManager.enabled is set without TLS")]
    [InlineData("tls.certManager.enabled=true", "tls.certManager.enabled requires the name of an issuer")]
    [InlineData(
        "etcd.tls.enabled=true,etcd.tls.secret=a,etcd.enabled=false,externalEtcd.endpoints={http://a:2379}",
        "etcd.tls is for the release's own etcd, and etcd.enabled is false")]
    [Trait("Turn", "1")]
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
        foreach (var program in (string[])["node", "router"])
        {
            var template = await TemplateAsync(program, "--set", "tls.enabled=true,tls.nodeSecret=n,tls.routerSecret=r,tls.clientAuth=" + clientAuth);

            Assert.Equal([clientAuth], Values(template, "tls-client-auth: (.+)"));
        }
    }

    /// <summary>With TLS every program exited with 2, because its address was http. The tests compared what was rendered, and no program read it.</summary>
    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("everything")]
    [InlineData("plain")]
    [InlineData("single")]
    public async Task Settings_WithValues_AreAcceptedByThePrograms(string name)
    {
        string[] values = ["--values", Path.Combine(Here, "values", name + ".yaml")];
        var (node, router) = (await TemplateAsync("node", values), await TemplateAsync("router", values));
        var variables = new Dictionary<string, string>
        {
            [NodeSettings.Node.Variable] = "1",
            [NodeSettings.Advertise.Variable] = Assert.Single(Values(node, "name: KVCLUSTER_ADVERTISE, value: \"(.+)\"}"))
                .Replace("$(KVCLUSTER_NODE)", "1", StringComparison.Ordinal),
            [NodeSettings.BootstrapNodes.Variable] = Assert.Single(Values(await TemplateAsync("config", values), "bootstrap-nodes: \"(.+)\"")),
        };

        Assert.Empty(MistakesOf(node, NodeSettings.RunTable, NodeSettings.Known, NodeSettings.CheckRun, variables));
        Assert.Empty(MistakesOf(router, RouterSettings.RunTable, RouterSettings.RunTable, RouterSettings.Check, []));
    }

    /// <summary>Both the CronJob and the Job that takes the first snapshot.</summary>
    [ToolTheory("helm")]
    [InlineData("default")]
    [InlineData("single")]
    public async Task SettingsOfSnapshots_WithValues_AreAcceptedByTheProgram(string name)
    {
        var template = await TemplateAsync("etcd-snapshots", "--values", Path.Combine(Here, "values", name + ".yaml"), "--set", "etcd.snapshots.keep=3");

        var files = Values(template, SettingsOfAPod).ToList();
        Assert.Equal(2, files.Count);
        Assert.All(files, static file => Assert.Empty(MistakesIn(file, NodeSettings.SnapshotTable, NodeSettings.Known, NodeSettings.CheckSnapshot, [])));
        Assert.All(files, static file => Assert.Contains("snapshot-keep: 3\n", file, StringComparison.Ordinal));
    }

    /// <summary>Kubernetes refuses longer names of CronJobs. A Job cannot be changed, so one with another content needs another name.</summary>
    [ToolFact("helm")]
    public async Task Snapshots_HaveNamesThatAreShortAndFollowTheContent()
    {
        const int CronJobNameMax = 52;
        string[] longest = ["--set", "fullnameOverride=" + new string('n', 40)];
        var (one, same, other) = (
            await TemplateAsync("etcd-snapshots", longest), await TemplateAsync("etcd-snapshots", longest),
            await TemplateAsync("etcd-snapshots", [.. longest, "--set", "etcd.snapshots.keep=3"]));

        var names = Values(one, "\n  name: (.+)").Distinct().ToList();
        Assert.All(
            names.Where(static name => name.EndsWith("-snapshots", StringComparison.Ordinal)), static name => Assert.InRange(name.Length, 1, CronJobNameMax));
        Assert.Equal(2, names.Count);
        Assert.Equal(one, same);
        Assert.Single(names.Intersect(Values(other, "\n  name: (.+)")));
    }

    [ToolFact("helm")]
    public async Task Snapshots_SwitchedOffOrOfAnotherEtcd_AreNotRendered()
    {
        foreach (var values in (string[])["etcd.snapshots.enabled=false", "etcd.enabled=false,externalEtcd.endpoints={http://a:2379}"])
        {
            var (exitCode, rendered, error) = await HelmAsync("template", "store", Chart, "--set", values);

            Assert.True(exitCode == 0, error);
            Assert.DoesNotContain("store-kvcluster-snapshots", rendered, StringComparison.Ordinal);
            Assert.DoesNotContain("coordinator-snapshot", rendered, StringComparison.Ordinal);
        }
    }

    [ToolFact("helm")]
    public async Task NodeCount_Changed_RestartsNoPod()
    {
        var (three, five) = (await TemplateAsync("node", "--set", "node.count=3"), await TemplateAsync("node", "--set", "node.count=5"));

        Assert.Equal(three.Replace("\n  replicas: 3", "\n  replicas: 5", StringComparison.Ordinal), five);
    }

    [ToolTheory("helm")]
    [InlineData("node")]
    [InlineData("router")]
    [Trait("Turn", "1")]
    public async Task Setting_Changed_RestartsThePodsOfItsProgramOnly(string part)
    {
        foreach (var other in (string[])["node", "router"])
        {
            var (before, after) = (await TemplateAsync(other), await TemplateAsync(other, "--set", $"{part}.settings.connections-max=1000"));

            Assert.Equal(other != part, before == after);
            Assert.Equal(before, after.Replace("          connections-max: 1000\n", "", StringComparison.Ordinal));
        }
    }

    /// <summary>
    /// The file was in a ConfigMap, which has no revisions: after an upgrade with a wrong setting had stopped at its first node, each other node, too, stopped
    /// at its next restart.
    /// </summary>
    [ToolTheory("helm")]
    [InlineData("node")]
    [InlineData("router")]
    public async Task Settings_OfAPod_AreThoseOfItsRevision(string part)
    {
        var template = await TemplateAsync(part);

        Assert.Single(Values(template, SettingsOfAPod));
        Assert.Equal(["metadata.annotations['kvcluster.dev/settings']"], Values(template, """path: settings\.yaml, fieldRef: \{fieldPath: "(.+?)"\}"""));
        Assert.DoesNotContain("configMap:", template, StringComparison.Ordinal);
    }

    /// <summary>Kubernetes said "Forbidden: updates to statefulset spec for fields other than ..." and no way to larger volumes.</summary>
    [ToolTheory("helm")]
    [InlineData("20Gi", null)]
    [InlineData("20480Mi", null)]
    [InlineData("40Gi", "the volumes have 20Gi. Run `deploy/kubernetes/grow-storage store 40Gi --namespace data")]
    [InlineData("0.01Ti", "the volumes have 20Gi and cannot shrink. Set {0}.storage.size=20Gi.")]
    [Trait("Turn", "1")]
    public async Task StorageSize_OtherThanThatOfTheVolumes_IsRefusedWithWhatToDo(string size, string? message)
    {
        const string Claim = """(dict "spec" (dict "resources" (dict "requests" (dict "storage" "20Gi"))))""";
        foreach (var part in (string[])["node", "etcd"])
        {
            var (exitCode, _, error) = await ShowAsync(
                $$$"""checked: {{ include "kv.checkStorage" (list . "{{{part}}}" (dict "spec" (dict "volumeClaimTemplates" (list {{{Claim}}})))) | quote }}""",
                "--set", $"{part}.storage.size={size}");

            Assert.Equal(message is null, exitCode == 0);
            if (message is not null)
                Assert.Contains(
                    $"{part}.storage.size is {size}, but " + message.Replace("{0}", part, StringComparison.Ordinal), error, StringComparison.Ordinal);
        }
    }

    /// <summary>
    /// Helm looks for the number of nodes that there are. A tool that only renders the chart finds none, and its upgrade may remove nodes, so their replicas
    /// must have moved.
    /// </summary>
    [ToolFact("helm")]
    public async Task Leave_RenderedWithoutKubernetes_NeedsAnAnswer() =>
        Assert.DoesNotContain("--skip-if-silent", await TemplateAsync("removed-nodes"), StringComparison.Ordinal);

    [ToolTheory("helm")]
    [InlineData("https", true)]
    [InlineData("http", false)]
    [Trait("Turn", "1")]
    public async Task EtcdTls_OfAnEtcdThatExists_CannotChange(string scheme, bool enabled)
    {
        foreach (var wanted in (bool[])[true, false])
        {
            var (exitCode, _, error) = await ShowAsync(
                $$$"""
                {{- $container := dict "args" (list "--initial-cluster=a={{{scheme}}}://a:2380") -}}
                checked: {{ include "kv.checkEtcd" (list . (dict "spec" (dict "template" (dict "spec" (dict "containers" (list $container)))))) | quote }}
                """,
                "--set", $"etcd.tls.secret=e,etcd.tls.enabled={(wanted ? "true" : "false")}");

            Assert.Equal(wanted == enabled, exitCode == 0);
            if (wanted != enabled)
                Assert.Contains("so it cannot be changed. Set it back.", error, StringComparison.Ordinal);
        }
    }

    /// <summary>etcd accepts a member only if a name in its certificate has the member's address, and a name with a star has none.</summary>
    [ToolFact("helm")]
    public async Task EtcdTls_WithCertManager_NamesTheServiceToo()
    {
        string[] values = ["--set", "tls.enabled=true,tls.certManager.enabled=true,tls.certManager.issuerRef.name=authority,etcd.tls.enabled=true"];

        var names = Values(await TemplateAsync("certificates", [.. values, "--namespace", "data"]), "- '?([^ ']+-etcd\\.[^ '\n]+)'?\n");

        Assert.Equal(["*.store-kvcluster-etcd.data.svc.cluster.local", "store-kvcluster-etcd.data.svc.cluster.local"], names);
        Assert.Equal(["store-kvcluster-etcd-tls"], Values(await TemplateAsync("etcd", values), "secretName: ([a-z-]+),"));
    }

    /// <summary>
    /// TLS is the default of new installations only: an upgrade without a value must not take an installation in plain text to TLS, which is an outage. Volumes
    /// without a StatefulSet are left by a release that was uninstalled, and a release of the same name goes on with them.
    /// </summary>
    [ToolTheory("helm")]
    [InlineData(null, false, false, true)]
    [InlineData("listen: http://0.0.0.0:7401", true, false, false)]
    [InlineData("listen: http://0.0.0.0:7401", true, true, false)]
    [InlineData("listen: https://0.0.0.0:7401", true, true, true)]
    [InlineData("--listen-client-urls=https://0.0.0.0:2379", true, true, true)]
    [InlineData(null, true, false, false)]
    [InlineData(null, true, true, true)]
    [Trait("Turn", "1")]
    public async Task Tls_WithoutAValue_IsThatOfWhatExists(string? statefulSet, bool hasVolumes, bool hasCertificate, bool expected)
    {
        var found = $"{(statefulSet is null ? "dict" : $"(dict \"text\" \"{statefulSet}\")")} {Object(hasVolumes)} {Object(hasCertificate)}";
        var (exitCode, rendered, error) = await ShowAsync($$$"""speaks: {{ include "kv.speaksTls" (list {{{found}}}) | quote }}""");

        Assert.True(exitCode == 0, error);
        Assert.EndsWith($"speaks: \"{(expected ? "true" : "")}\"", rendered, StringComparison.Ordinal);

        static string Object(bool exists) => exists ? "(dict \"kind\" \"any\")" : "dict";
    }

    /// <summary>A certificate that lacks a name is found only by who connects. Those of the Jobs and of cert-manager have the same.</summary>
    [ToolFact("helm")]
    public async Task Certificates_OfTheJobs_NameWhatNodesAndRoutersAreCalled()
    {
        string[] values = ["--namespace", "data", "--set", "node.count=2,cluster.replicationFactor=2,tls.routerNames={kv.example,10.0.0.1}"];
        var job = await TemplateAsync("secrets", values);
        var made = Values(job, "\"--certificate=(.+)\"").Select(SecretCertificate.Parse).ToList();
        var (node, router, etcd) = (NamesIn("store-kvcluster-node-tls"), NamesIn("store-kvcluster-router-tls"), NamesIn("store-kvcluster-etcd-tls"));

        foreach (var name in (string[])[NodeNames.OfNode(200, "store"),
            "store-kvcluster-node-200.store-kvcluster-node.data.svc.cluster.local", "store-kvcluster-nodes.data.svc.cluster.local"])
            Assert.True(NodeNames.Cover(node, name), name);
        foreach (var name in (string[])["store-kvcluster.data.svc.cluster.local", "kv.example", "10.0.0.1"])
            Assert.True(NodeNames.Cover(router, name), name);
        foreach (var name in (string[])["store-kvcluster-etcd-2.store-kvcluster-etcd.data.svc.cluster.local", "store-kvcluster-etcd.data.svc.cluster.local"])
            Assert.True(NodeNames.Cover(etcd, name), name);
        Assert.Empty(NamesIn("store-kvcluster-client-tls"));
        var ofCertManager = await TemplateAsync("certificates", [.. values, "--set", "tls.certManager.enabled=true,tls.certManager.issuerRef.name=authority"]);
        Assert.Equal(new[] { node, router, etcd }.SelectMany(names => names).Order(), Values(ofCertManager, "    - '?([^' \\n]+)'?(?:\\n|$)").Order());

        IReadOnlyList<string> NamesIn(string secret) => made.First(one => one.Secret == secret).Names;
    }

    /// <summary>
    /// What a Job may do is limited to the secrets that it makes. Kubernetes cannot limit "create" to names, so only the Job of an installation or upgrade may.
    /// </summary>
    [ToolFact("helm")]
    public async Task Roles_OfTheJobs_NameTheirSecrets()
    {
        var objects = (await TemplateAsync("secrets")).Split("\n---\n");
        var made = Values(string.Concat(objects), "(?:--authority=|--certificate=)([a-z-]+)").Distinct().Order().ToList();
        var roles = objects.Where(one => one.Contains("kind: Role\n", StringComparison.Ordinal)).ToList();

        Assert.Equal(6, made.Count);
        Assert.Equal(2, roles.Count);
        foreach (var role in roles)
        {
            Assert.Equal(made, Values(role, "\n      - ([a-z-]+)").Order());
            Assert.Equal(["secrets"], Values(role, "resources: \\[(.+)\\]").Distinct());
            Assert.Equal(
                role.Contains("helm.sh/hook: pre-install,pre-upgrade", StringComparison.Ordinal) ? ["get, patch", "create"] : ["get, patch"],
                Values(role, "verbs: \\[(.+)\\]"));
        }
    }

    [ToolTheory("helm")]
    [InlineData("tls.enabled=false", "")]
    [InlineData("tls.nodeSecret=n,tls.routerSecret=r,etcd.tls.secret=e", "")]
    [InlineData("tls.certManager.enabled=true,tls.certManager.issuerRef.name=authority", "")]
    [InlineData("tls.nodeSecret=n,tls.routerSecret=r", "store-kvcluster-etcd-tls")]
    [InlineData(
        "etcd.enabled=false,externalEtcd.endpoints={http://etcd:2379}", "store-kvcluster-node-tls store-kvcluster-router-tls store-kvcluster-client-tls")]
    [Trait("Turn", "1")]
    public async Task Certificates_ThatComeFromElsewhere_AreNotMade(string values, string made)
    {
        var (exitCode, rendered, error) = await HelmAsync("template", "store", Chart, "--set", values);

        Assert.True(exitCode == 0, error);
        Assert.Equal(made, string.Join(' ', Values(rendered, "--certificate=([a-z-]+)").Distinct()));
        Assert.Equal(made.Length > 0, rendered.Contains("name: store-kvcluster-certs\n", StringComparison.Ordinal));
    }

    /// <summary>Pods wait for each key of a secret that they name, so a key of another name would keep them from starting.</summary>
    [ToolFact("helm")]
    public async Task Secrets_OfPods_HaveTheKeysOfCertsInit()
    {
        using var folder = new TemporaryDirectory();
        DevelopmentCertificates.Create(folder.Path, "store", nodes: null, ["kv.example"], DateTimeOffset.UtcNow);
        foreach (var program in (string[])["node", "router"])
        {
            var keys = Values(await TemplateAsync(program), "key: ([a-z.]+), path: tls/").Order();

            Assert.Equal(Directory.GetFiles(Path.Combine(folder.Path, program)).Select(Path.GetFileName).Order(), keys);
        }
    }

    [ToolFact("helm")]
    public async Task ServiceMonitor_WithAnEtcdOfTheRelease_ScrapesItsMetricsThroughThePolicy()
    {
        string[] values =
            ["--set", "metrics.serviceMonitor.enabled=true,networkPolicy.enabled=true,networkPolicy.monitoring[0].podSelector.matchLabels.team=operations"];

        Assert.Equal(["admin", "metrics"], Values(await TemplateAsync("monitoring", values), @"\{port: (\w+), path: /metrics"));
        Assert.Contains("{name: metrics, port: 2381, targetPort: metrics}", await TemplateAsync("etcd", values), StringComparison.Ordinal);
        var rules = (await TemplateAsync("networkpolicy", values)).Split("    - from:");
        Assert.Contains("team: operations", Assert.Single(rules, rule => rule.Contains("port: metrics", StringComparison.Ordinal)), StringComparison.Ordinal);
    }

    [ToolTheory("helm")]
    [InlineData("node")]
    [InlineData("router")]
    [InlineData("etcd")]
    [Trait("Turn", "1")]
    public async Task Scheduling_OfEachPart_CanBeChosen(string part)
    {
        var byDefault = await TemplateAsync(part);
        var chosen = await TemplateAsync(part, "--set", $"{part}.priorityClassName=high,{part}.topologyKey=rack,{part}.affinity.nodeAffinity.of=mine");

        Assert.Contains("topologyKey: topology.kubernetes.io/zone", byDefault, StringComparison.Ordinal);
        Assert.Contains("preferredDuringSchedulingIgnoredDuringExecution", byDefault, StringComparison.Ordinal);
        Assert.Contains("priorityClassName: high", chosen, StringComparison.Ordinal);
        Assert.Contains("topologyKey: rack", chosen, StringComparison.Ordinal);
        Assert.Contains("nodeAffinity:", chosen, StringComparison.Ordinal);
        Assert.DoesNotContain("podAntiAffinity", chosen, StringComparison.Ordinal);
    }

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
            "networkpolicy", "--set",
            "networkPolicy.enabled=true,networkPolicy.clients[0].podSelector.matchLabels.team=orders,networkPolicy.monitoring[0].podSelector.matchLabels.team=operations");

        var rules = policy.Split("    - from:");
        Assert.Contains("team: operations", Assert.Single(rules, rule => rule.Contains("port: admin", StringComparison.Ordinal)), StringComparison.Ordinal);
        Assert.DoesNotContain("port: admin", Assert.Single(rules, rule => rule.Contains("team: orders", StringComparison.Ordinal)), StringComparison.Ordinal);
    }

    [ToolTheory("helm")]
    [InlineData(10, "5")]
    [InlineData(30, "25")]
    [InlineData(600, "595")]
    [Trait("Turn", "1")]
    public async Task Node_WithATerminationGracePeriod_HasFiveSecondsLessToStop(int seconds, string stopGrace)
    {
        var node = await TemplateAsync("node", "--set", $"node.terminationGracePeriodSeconds={seconds}");

        Assert.Equal([seconds.ToString(CultureInfo.InvariantCulture)], Values(node, "terminationGracePeriodSeconds: (.+)"));
        Assert.Equal([stopGrace], Values(node, "stop-grace-seconds: (.+)"));
    }

    [ToolFact("helm")]
    public async Task Router_WithItsOwnStopGrace_GetsThatPlusItsDelay()
    {
        var router = await TemplateAsync("router", "--set", "router.stopDelaySeconds=7,router.settings.stop-grace-seconds=40");

        Assert.Equal(["52"], Values(router, "terminationGracePeriodSeconds: (.+)"));
    }

    [ToolTheory("helm")]
    [InlineData("plain", null)]
    [InlineData("default", "store-kvcluster-router-tls")]
    [InlineData("single", "my-router")]
    [InlineData("everything", "store-kvcluster-router-tls")]
    [Trait("Turn", "1")]
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
        Assert.Equal(
            "ALL", Assert.Single(container.GetProperty("securityContext").GetProperty("capabilities").GetProperty("drop").EnumerateArray()).GetString());
        var settings = container.GetProperty("env").EnumerateArray().ToDictionary(
            one => one.GetProperty("name").GetString()!, one => one.GetProperty("value").GetString()!);
        Assert.Equal($"{(secret is null ? "http" : "https")}://store-kvcluster.data.svc.cluster.local:7400", settings["KV_ENDPOINT"]);
        Assert.Equal(secret is not null, pod.TryGetProperty("volumes", out var volumes));
        if (secret is null)
            return;
        Assert.Equal(secret, Assert.Single(volumes.EnumerateArray()).GetProperty("secret").GetProperty("secretName").GetString());
        Assert.Equal("/tls", Assert.Single(container.GetProperty("volumeMounts").EnumerateArray()).GetProperty("mountPath").GetString());
        Assert.Equal(
            ("/tls/ca.crt", "/tls/tls.crt", "/tls/tls.key"), (settings["KVCLUSTER_TLS_CA"], settings["KVCLUSTER_TLS_CERT"], settings["KVCLUSTER_TLS_KEY"]));
    }

    [ToolTheory("helm")]
    [InlineData("tls.enabled=false", "tls.enabled is false")]
    [InlineData("tls.enabled=true")]
    [InlineData("etcd.tls.enabled=false", "own etcd: it speaks plain text", "networkPolicy.enabled admits only its own members")]
    [InlineData("etcd.tls.enabled=false,networkPolicy.enabled=true", "own etcd: it speaks plain text", "can still be read on its way")]
    [InlineData("tls.enabled=true,etcd.tls.enabled=true,etcd.tls.secret=e")]
    [InlineData("tls.enabled=true,etcd.enabled=false,externalEtcd.endpoints={https://etcd:2379}")]
    [InlineData(
        "tls.enabled=true,etcd.enabled=false,externalEtcd.endpoints={https://etcd:2379},networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true",
        "networkPolicy.monitoring is empty")]
    [Trait("Turn", "1")]
    public async Task Notes_OnWhatIsOpen_WarnOfThatAlone(string values, params string[] warnings)
    {
        var notes = await NotesAsync("--set", "tls.nodeSecret=n,tls.routerSecret=r," + values);

        Assert.Equal(warnings.Length > 0 ? 1 : 0, Regex.Count(notes, "WARNING"));
        Assert.All(warnings, warning => Assert.Contains(warning, notes, StringComparison.Ordinal));
    }

    /// <summary>
    /// A value that is only rendered may do nothing, or keep pods from starting: with TLS no program started, and the golden files were right.
    /// tests/nightly/kubernetes installs its values files, or says in its commands what it sets.
    /// </summary>
    [ToolFact("helm")]
    public async Task Values_AreAllInstalled_ByTheNightlyScript()
    {
        var nightly = Path.Combine(Tools.Repository(), "tests", "nightly");
        var script = await File.ReadAllTextAsync(Path.Combine(nightly, "kubernetes"));
        var installed = Regex.Matches(script, @"--set(?:-string)? ""?([\w.]+)=").Select(match => match.Groups[1].Value).ToHashSet();
        foreach (var file in Directory.GetFiles(Path.Combine(nightly, "kubernetes-values")))
            installed.UnionWith(await LeavesAsync("--values", file));

        Assert.NotEmpty(installed);
        Assert.Equal(NotInstalled.Keys.Order(), (await LeavesAsync("--values", Path.Combine(Chart, "values.yaml"))).Except(installed).Order());
        return;

        // The paths of all values in a file. A chart of nothing else renders them, so that those of the chart itself are not among them.
        static async Task<IEnumerable<string>> LeavesAsync(params string[] arguments)
        {
            using var copy = new TemporaryDirectory();
            Directory.CreateDirectory(Path.Combine(copy.Path, "templates"));
            await File.WriteAllTextAsync(Path.Combine(copy.Path, "Chart.yaml"), "apiVersion: v2\nname: values\nversion: 0.1.0\n");
            await File.WriteAllTextAsync(Path.Combine(copy.Path, "templates", "values.yaml"), "values: {{ toJson .Values | quote }}\n");
            var (exitCode, rendered, error) = await HelmAsync(["template", "values", copy.Path, .. arguments]);
            Assert.True(exitCode == 0, error);
            return [.. LeavesOf(
                JsonNode.Parse(JsonNode.Parse(rendered[(rendered.IndexOf("values: ", StringComparison.Ordinal) + "values: ".Length)..])!.GetValue<string>()),
                "")];
        }

        static IEnumerable<string> LeavesOf(JsonNode? node, string path) => node is JsonObject { Count: > 0 } entries && !FreeForm.IsMatch(path)
            ? entries.SelectMany(entry => LeavesOf(entry.Value, path.Length == 0 ? entry.Key : $"{path}.{entry.Key}"))
            : [path];
    }

    private static async Task AssertGoldenAsync(string name, string rendered)
    {
        var golden = Path.Combine(Here, "golden", name);
        if (WritesGolden)
            await File.WriteAllTextAsync(golden, rendered + "\n");
        Assert.Equal((await File.ReadAllTextAsync(golden)).TrimEnd(), rendered);
    }

    // What a program says about its file in its rendered pod.
    private static IReadOnlyList<string> MistakesOf(
        string template, IReadOnlyList<Setting> table, IReadOnlyList<Setting> known, Action<Settings> check, Dictionary<string, string> variables) =>
        MistakesIn(Assert.Single(Values(template, SettingsOfAPod)), table, known, check, variables);

    private static IReadOnlyList<string> MistakesIn(
        string content, IReadOnlyList<Setting> table, IReadOnlyList<Setting> known, Action<Settings> check, Dictionary<string, string> variables)
    {
        using var folder = new TemporaryDirectory();
        var file = Path.Combine(folder.Path, "settings.yaml");
        File.WriteAllText(file, content);
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

    private static async Task<string> NotesAsync(params IEnumerable<string> arguments)
    {
        var (exitCode, rendered, error) = await ShowAsync("notes: |\n{{ include (print $.Template.BasePath \"/NOTES.txt\") . | indent 2 }}\n", arguments);
        Assert.True(exitCode == 0, error);
        var notes = rendered[(rendered.IndexOf("notes: |\n", StringComparison.Ordinal) + "notes: |\n".Length)..];
        return string.Join('\n', notes.Split('\n').Select(line => line.Length > 2 ? line[2..] : "")).Trim();
    }

    // Renders a template in a copy of the chart. Helm shows the notes only when it installs, and looks for objects only with a Kubernetes.
    private static async Task<(int ExitCode, string Output, string Error)> ShowAsync(string template, params IEnumerable<string> arguments)
    {
        using var copy = new TemporaryDirectory();
        Directory.CreateDirectory(Path.Combine(copy.Path, "templates"));
        foreach (var file in (string[])["Chart.yaml", "values.yaml", "values.schema.json", .. Directory.EnumerateFiles(Path.Combine(Chart, "templates"))
            .Select(path => Path.GetRelativePath(Chart, path))])
            File.Copy(Path.Combine(Chart, file), Path.Combine(copy.Path, file));
        await File.WriteAllTextAsync(Path.Combine(copy.Path, "templates", "shown.yaml"), template);
        return await HelmAsync(["template", "store", copy.Path, "--namespace", "data", "--show-only", "templates/shown.yaml", .. arguments]);
    }

    private static Task<(int ExitCode, string Output, string Error)> HelmAsync(params IEnumerable<string> arguments) =>
        Tools.RunAsync(Tools.Find("helm")!, [.. arguments, "--kube-version", "1.34.0"]);
}
