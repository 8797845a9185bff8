namespace KvCluster.Tests.House;

/// <summary>References between projects go one way. A new edge is a decision about the architecture, made here and in ARCHITECTURE.md.</summary>
public sealed class ReferenceTests
{
    private static readonly Dictionary<string, string[]> Allowed = new()
    {
        ["proto/Primitives/KvCluster.Primitives.csproj"] = [],
        ["proto/Tls/KvCluster.Tls.csproj"] = [],
        ["proto/Contract/KvCluster.Proto.csproj"] = ["KvCluster.Primitives"],
        ["client/Console/KvCluster.AdminConsole.csproj"] = ["KvCluster.Client", "KvCluster.ServiceDefaults"],
        ["proto/ServiceDefaults/KvCluster.ServiceDefaults.csproj"] = ["KvCluster.Proto", "KvCluster.Tls"],
        ["node/Storage/KvCluster.Storage.csproj"] = ["KvCluster.Primitives"],
        ["node/Storage/Embedded/KvCluster.Storage.Embedded.csproj"] = ["KvCluster.Storage"],
        ["node/Replication/KvCluster.Replication.csproj"] = ["KvCluster.Proto"],
        ["node/Server/KvCluster.Node.csproj"] = ["KvCluster.Storage",
            "KvCluster.Replication", "KvCluster.Proto", "KvCluster.ServiceDefaults", "KvCluster.AdminConsole"],
        ["client/KvCluster.Client.csproj"] = ["KvCluster.Proto", "KvCluster.Tls"],
        ["client/Cli/KvCluster.Cli.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/AspNetCore/KvCluster.Extensions.AspNetCore.csproj"] = ["KvCluster.Client", "KvCluster.Extensions.Caching"],
        ["client/Extensions/Caching/KvCluster.Extensions.Caching.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/Configuration/KvCluster.Extensions.Configuration.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/DataProtection/KvCluster.Extensions.DataProtection.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/DependencyInjection/KvCluster.Extensions.DependencyInjection.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/DistributedLock/KvCluster.Extensions.DistributedLock.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/HealthChecks/KvCluster.Extensions.HealthChecks.csproj"] = ["KvCluster.Client"],
        ["client/Extensions/OpenTelemetry/KvCluster.Extensions.OpenTelemetry.csproj"] = ["KvCluster.Client"],
        ["client/Testing/KvCluster.Testing.csproj"] = ["KvCluster.Client"],
        ["client/TestCluster/KvCluster.TestCluster.csproj"] = ["KvCluster.Client", "KvCluster.Storage", "KvCluster.Node"],
        ["client/examples/FacetBrowser/FacetBrowser.csproj"] = ["KvCluster.Client"],
        ["client/examples/Inventory/Inventory.csproj"] = ["KvCluster.Client"],
        ["client/examples/JobQueue/JobQueue.csproj"] = ["KvCluster.Client"],
        ["client/examples/Settings/Settings.csproj"] = ["KvCluster.Client", "KvCluster.Extensions.Configuration"],
        ["client/examples/WebCache/WebCache.csproj"] = ["KvCluster.Client", "KvCluster.Extensions.Caching", "KvCluster.Extensions.DependencyInjection"],
        ["router/KvCluster.Router.csproj"] = ["KvCluster.Client", "KvCluster.ServiceDefaults", "KvCluster.AdminConsole"],
        ["deploy/local/KvCluster.Local.csproj"] = ["KvCluster.Node", "KvCluster.Router"],
    };

    [Fact]
    public void Projects_OutsideTests_AreListed() =>
        Assert.Equal(Allowed.Keys.Order(StringComparer.Ordinal), House.Projects().Where(path => !path.StartsWith("tests/", StringComparison.Ordinal)));

    [Fact]
    public void References_OfEachProject_GoOneWay() =>
        Assert.Empty(Allowed.Keys.SelectMany(project => ReferencesOf(project).Except(Allowed[project]).Select(name => $"{project} -> {name}")));

    [Fact]
    public void Tests_AreNotReferencedByShippedProjects() =>
        Assert.DoesNotContain(Allowed.Keys, project => House.Read(project).Contains("tests/", StringComparison.Ordinal));

    [Fact]
    public void Solution_NamesEveryProject()
    {
        var solution = House.Read("KvCluster.sln").Replace('\\', '/');
        Assert.DoesNotContain(House.Projects(), project => !solution.Contains($"\"{project}\"", StringComparison.Ordinal));
    }

    // A reference without its assembly only orders the build: the launcher builds `kv` but does not use it.
    private static IEnumerable<string> ReferencesOf(string project) => House.ReadXml(project).Descendants("ProjectReference")
        .Where(reference => (string?)reference.Attribute("ReferenceOutputAssembly") != "false")
        .Select(reference => Path.GetFileNameWithoutExtension(((string?)reference.Attribute("Include"))!));
}
