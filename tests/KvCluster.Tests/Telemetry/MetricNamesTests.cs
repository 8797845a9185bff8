using System.Diagnostics.Metrics;
using System.Text.RegularExpressions;
using KvCluster.Client.Telemetry;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Security;
using KvCluster.ServiceDefaults.Telemetry;

namespace KvCluster.Tests.Telemetry;

/// <summary>The names in METRICS.md, the dashboards and the alerts are those in the code.</summary>
public sealed partial class MetricNamesTests
{
    [Fact]
    public async Task TableOfMetrics_InItsDocument_EqualsTheCode()
    {
        var found = (await InstrumentsAsync())
            .Select(instrument => $"`{instrument.Name}` | {KindOf(instrument)} | `{instrument.Unit}` | {instrument.Description}");
        var told = Row().Matches(House.House.Read("deploy/telemetry/METRICS.md")).Select(row => row.Groups[1].Value);
        Assert.Equal(found.Order(StringComparer.Ordinal), told.Order(StringComparer.Ordinal));
    }

    [Fact]
    public async Task QueriesOfDashboardsAndAlerts_NameExistingMetrics()
    {
        var known = (await InstrumentsAsync()).SelectMany(NamesOf).ToHashSet();
        var files = Directory.GetFiles(Path.Combine(House.House.Root, "deploy/telemetry"), "*.*", SearchOption.AllDirectories);
        Assert.NotEmpty(files);
        var used = files.SelectMany(file => Name().Matches(File.ReadAllText(file))).Select(name => name.Value).Distinct();
        Assert.Empty(used.Except(known));
    }

    [Fact]
    public async Task Instruments_FollowTheRulesForNamesUnitsAndDescriptions() => Assert.All(await InstrumentsAsync(), instrument =>
    {
        Assert.Matches("^kvcluster\\.(node|router|client|tls)(\\.[a-z]+)+$", instrument.Name);
        Assert.Matches("^(s|By|\\{[a-z]+\\})$", instrument.Unit);
        Assert.EndsWith(".", instrument.Description, StringComparison.Ordinal);
    });

    private static async Task<IReadOnlyList<Instrument>> InstrumentsAsync()
    {
        await using var node = new NodeMetrics(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 1);
        using var router = new RouterMetrics();
        // The static metrics of this class are created at its first use.
        _ = ClientMetrics.WatchesRequests;
        _ = CertificateMetrics.Meter;
        var found = new List<Instrument>();
        using var listener = new MeterListener
        {
            InstrumentPublished = (instrument, _) =>
            {
                if (ReferenceEquals(instrument.Meter, node.Meter)
                    || ReferenceEquals(instrument.Meter, router.Meter) || instrument.Meter.Name is ClientMetrics.Name or CertificateMetrics.Name)
                    found.Add(instrument);
            },
        };
        listener.Start();
        return found;
    }

    private static string KindOf(Instrument instrument) => MetricKind.Of(instrument) switch
    {
        { IsHistogram: true } => "histogram",
        { IsMonotonic: true } => "counter",
        { IsGauge: true } => "gauge",
        _ => "sum",
    };

    private static IEnumerable<string> NamesOf(Instrument instrument)
    {
        var kind = MetricKind.Of(instrument);
        var name = MetricName.Of(instrument.Name, instrument.Unit, kind);
        return kind.IsHistogram ? [$"{name}_bucket", $"{name}_sum", $"{name}_count"] : [name];
    }

    [GeneratedRegex(@"^\| (`kvcluster\.[a-z.]+` \| \w+ \| `[^`]+` \| .+) \|$", RegexOptions.Multiline)]
    private static partial Regex Row();

    // Labels begin with the same word, but are only in braces or lists, never where a metric can be.
    [GeneratedRegex(@"\bkvcluster_(node|router|client|tls)_\w+")]
    private static partial Regex Name();
}
