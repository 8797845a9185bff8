using System.Text.Json;

namespace KvCluster.Tests.Deploy;

/// <summary>
/// Grafana in docker-compose.yml: the files that provision it, by the fields that Grafana documents for them, and the dashboards as it reads them. Grafana
/// skips what it does not understand and only logs it. tests/KvCluster.ClusterTests/Telemetry runs each query against a Prometheus.
/// </summary>
public sealed class GrafanaTests
{
    private const string Folder = "deploy/compose/grafana/";
    private const string Dashboards = "deploy/telemetry/dashboards";

    private static readonly string[] OfDatasource =
        ["name", "type", "uid", "access", "url",
            "orgId", "isDefault", "editable", "version", "jsonData", "secureJsonData", "basicAuth", "basicAuthUser", "withCredentials", "database", "user"];

    private static readonly string[] OfProvider =
        ["name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds", "allowUiUpdates", "options"];

    // Those that Grafana has built in and these dashboards use.
    private static readonly string[] PanelTypes = ["timeseries", "stat", "gauge", "bargauge", "table", "heatmap", "state-timeline", "row", "text"];

    private static object Service => ComposeTests.Services().Single(static service => service.Name == "grafana").Service;

    [Fact]
    public void Service_StandsBehindAProfile_AndMountsFilesThatExist()
    {
        Assert.Equal(["dashboards"], ListOf(Service, "profiles"));
        foreach (var source in Mounts().Keys.Where(static source => source.StartsWith("./", StringComparison.Ordinal)))
            Assert.True(Path.Exists(Path.Combine(House.House.Root, source)), $"{source} does not exist, so Docker would make an empty directory of it");
    }

    [Fact]
    public void Datasource_HasTheFormOfGrafana_AndLeadsToPrometheus()
    {
        Assert.Equal("/etc/grafana/provisioning/datasources/kvcluster.yml", Mounts()["./" + Folder + "datasource.yml"]);
        var file = ComposeTests.Load(Folder + "datasource.yml");
        Assert.Equal("1", file["apiVersion"]);
        Assert.Empty(file.Keys.Except(["apiVersion", "datasources", "deleteDatasources", "prune"]));
        var source = Assert.IsType<Dictionary<object, object>>(Assert.Single(Assert.IsType<List<object>>(file["datasources"])));
        Assert.Empty(source.Keys.Except(OfDatasource));
        Assert.Equal(("prometheus", "proxy", "true"), ((string)source["type"], (string)source["access"], (string)source["isDefault"]));
        var url = new Uri((string)source["url"]);
        Assert.Contains(url.Host, ComposeTests.Services().Select(static service => service.Name));
        Assert.EndsWith(
            $":{url.Port}", Assert.Single(ListOf(ComposeTests.Services().Single(service => service.Name == url.Host).Service, "ports")),
            StringComparison.Ordinal);
    }

    [Fact]
    public void Provider_HasTheFormOfGrafana_AndReadsTheFolderWhereTheDashboardsAre()
    {
        Assert.Equal("/etc/grafana/provisioning/dashboards/kvcluster.yml", Mounts()["./" + Folder + "dashboards.yml"]);
        var file = ComposeTests.Load(Folder + "dashboards.yml");
        Assert.Equal("1", file["apiVersion"]);
        Assert.Empty(file.Keys.Except(["apiVersion", "providers"]));
        var provider = Assert.IsType<Dictionary<object, object>>(Assert.Single(Assert.IsType<List<object>>(file["providers"])));
        Assert.Empty(provider.Keys.Except(OfProvider));
        Assert.Equal("file", provider["type"]);
        Assert.Equal(Mounts()["./" + Dashboards], ComposeTests.ValueOf(provider["options"], "path"));
    }

    [Fact]
    public void Dashboards_HaveTheFormOfGrafana_AndNameTheProvisionedKindOfSource()
    {
        var uids = new List<string>();
        foreach (var file in Directory.EnumerateFiles(Path.Combine(House.House.Root, Dashboards), "*.json"))
        {
            using var document = JsonDocument.Parse(File.ReadAllText(file));
            var dashboard = document.RootElement;
            uids.Add(dashboard.GetProperty("uid").GetString()!);
            Assert.NotEmpty(dashboard.GetProperty("title").GetString()!);
            Assert.InRange(dashboard.GetProperty("schemaVersion").GetInt32(), 36, 41);
            // A variable chooses among the sources of a kind, so that the dashboards do not depend on a name.
            var source = dashboard.GetProperty("templating").GetProperty("list").EnumerateArray()
                .Single(static variable => variable.GetProperty("name").GetString() == "datasource");
            Assert.Equal(("datasource", "prometheus"), (source.GetProperty("type").GetString(), source.GetProperty("query").GetString()));
            var panels = dashboard.GetProperty("panels").EnumerateArray().ToList();
            Assert.NotEmpty(panels);
            Assert.Equal(panels.Count, panels.Select(static panel => panel.GetProperty("id").GetInt32()).Distinct().Count());
            Assert.All(panels, CheckPanel);
        }
        Assert.Equal(uids.Count, uids.Distinct(StringComparer.Ordinal).Count());
        // A uid has at most 40 characters; a longer one is refused, and with it the dashboard.
        Assert.All(uids, static uid => Assert.InRange(uid.Length, 1, 40));
    }

    private static void CheckPanel(JsonElement panel)
    {
        Assert.Contains(panel.GetProperty("type").GetString(), PanelTypes);
        var place = panel.GetProperty("gridPos");
        Assert.InRange(place.GetProperty("x").GetInt32() + place.GetProperty("w").GetInt32(), 1, 24);
        Assert.InRange(place.GetProperty("h").GetInt32(), 1, 40);
        if (!panel.TryGetProperty("targets", out var targets))
            return;
        Assert.Equal("${datasource}", panel.GetProperty("datasource").GetProperty("uid").GetString());
        Assert.Equal(targets.GetArrayLength(), targets.EnumerateArray().Select(static target => target.GetProperty("refId").GetString()).Distinct().Count());
        Assert.All(targets.EnumerateArray(), static target => Assert.NotEmpty(target.GetProperty("expr").GetString()!));
    }

    private static IEnumerable<string> ListOf(object mapping, string key) => Assert.IsType<List<object>>(ComposeTests.ValueOf(mapping, key)).Cast<string>();

    // Where what of the machine is in the container.
    private static Dictionary<string, string> Mounts() => ListOf(Service, "volumes").Select(static volume => volume.Split(':'))
        .ToDictionary(static parts => parts[0], static parts => parts[1], StringComparer.Ordinal);
}
