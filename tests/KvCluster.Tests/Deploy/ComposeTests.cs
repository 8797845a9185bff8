using System.Globalization;
using System.Text.RegularExpressions;
using YamlDotNet.Serialization;

namespace KvCluster.Tests.Deploy;

/// <summary>docker-compose.yml: what each service must have, and numbers in it that depend on each other.</summary>
public sealed partial class ComposeTests
{
    private static readonly Dictionary<object, object> Compose = Load("docker-compose.yml");

    [Fact]
    public void StopGracePeriod_OfANode_IsLongerThanItsOwnGrace()
    {
        var compose = House.House.Read("docker-compose.yml");

        var killed = Seconds(KilledAfter().Match(compose));
        Assert.InRange(Seconds(StopGrace().Match(compose)), killed / 2, killed - 3);
    }

    /// <summary>Logs grew until the disk was full, and one container could take the memory of all.</summary>
    [Fact]
    public void Services_ThatStay_AreRestarted_AndHaveBoundedLogsAndMemory()
    {
        foreach (var (name, service) in Services().Where(static service => service.Name != "kv"))
        {
            Assert.Equal("unless-stopped", ValueOf(service, "restart"));
            Assert.True(ValueOf(service, "mem_limit") is string, $"{name} has no limit of memory");
            var options = ValueOf(ValueOf(service, "logging"), "options");
            Assert.True(ValueOf(options, "max-size") is string && ValueOf(options, "max-file") is string, $"{name} keeps all that it ever logged");
        }
    }

    [Fact]
    public void MemoryLimits_AddUpToWhatTheHeadSays_AndAreEnoughForThePrograms()
    {
        var limits = Services().Where(static service => service.Name != "kv").ToDictionary(
            static service => service.Name, static service => MebibytesOf((string)ValueOf(service.Service, "mem_limit")!));

        var told = double.Parse(TogetherGibibytes().Match(House.House.Read("docker-compose.yml")).Groups[1].ValueSpan, CultureInfo.InvariantCulture);
        Assert.Equal(told * 1_024, limits.Values.Sum());
        // The least that a program starts with, and as much again for the files that the kernel keeps for it.
        Assert.All(
            limits.Where(static limit => limit.Key.StartsWith("node-", StringComparison.Ordinal)), static limit => Assert.InRange(limit.Value, 2 * 384, 4_096));
        Assert.InRange(limits["router"], 192, 1_024);
    }

    /// <summary>A tag is added to the names that Compose would use without a variable.</summary>
    [Fact]
    public void Upgrade_KnowsTheImagesOfTheFile() => Assert.Equal(
        Image().Matches(House.House.Read("docker-compose.yml")).Select(static image => (image.Groups[1].Value, image.Groups[2].Value)).Order(),
        NamedImage().Matches(House.House.Read("deploy/compose/upgrade")).Select(static image => (image.Groups[1].Value, image.Groups[2].Value)).Order());

    /// <summary>A program that scrapes or is scraped under a name that no service has sees nothing, and says nothing.</summary>
    [Fact]
    public void Prometheus_ScrapesServicesThatExist()
    {
        var services = Services().Select(static service => service.Name).ToHashSet(StringComparer.Ordinal);
        var targets = Target().Matches(House.House.Read("deploy/compose/prometheus.yml")).Select(static target => target.Groups[1].Value).ToList();
        Assert.Equal(
            services.Where(static name => name.StartsWith("node-", StringComparison.Ordinal) || name == "router").Order(StringComparer.Ordinal),
            targets.Order(StringComparer.Ordinal));
    }

    /// <summary>The services, by the order of the file.</summary>
    internal static IEnumerable<(string Name, object Service)> Services() =>
        ((Dictionary<object, object>)Compose["services"]).Select(static service => ((string)service.Key, service.Value));

    /// <summary>A mapping's value, or that of the mapping which it is merged with; null if there is none.</summary>
    internal static object? ValueOf(object? mapping, string key) => mapping is not Dictionary<object, object> values ? null
        : values.TryGetValue(key, out var own) ? own
        : values.TryGetValue("<<", out var merged) ? ValueOf(merged, key)
        : null;

    /// <summary>A YAML file of the repository. Merge keys stay as they are.</summary>
    internal static Dictionary<object, object> Load(string path) =>
        new DeserializerBuilder().Build().Deserialize<Dictionary<object, object>>(House.House.Read(path));

    private static int Seconds(Match match) => int.Parse(match.Groups[1].ValueSpan, CultureInfo.InvariantCulture);

    // What is used without a variable.
    private static int MebibytesOf(string limit) => int.Parse(DefaultLimit().Match(limit).Groups[1].ValueSpan, CultureInfo.InvariantCulture);

    [GeneratedRegex("stop_grace_period: ([0-9]+)s")]
    private static partial Regex KilledAfter();

    [GeneratedRegex("KVCLUSTER_STOP_GRACE_SECONDS: \"([0-9]+)\"")]
    private static partial Regex StopGrace();

    [GeneratedRegex(@"^\$\{[A-Z]+_MEMORY:-([0-9]+)m\}$")]
    private static partial Regex DefaultLimit();

    [GeneratedRegex(@"together ([0-9.]+) GiB with Grafana")]
    private static partial Regex TogetherGibibytes();

    [GeneratedRegex(@"\$\{([A-Z]+_IMAGE):-(kvcluster/[^}]+)\}")]
    private static partial Regex Image();

    [GeneratedRegex(@"\[([A-Z]+_IMAGE)\]=(kvcluster/[^ )]+)")]
    private static partial Regex NamedImage();

    [GeneratedRegex(@"""([a-z0-9-]+):7480""")]
    private static partial Regex Target();
}
