using Docker.DotNet;
using DotNet.Testcontainers.Builders;
using DotNet.Testcontainers.Configurations;

namespace KvCluster.ContainerTests;

/// <summary>
/// The Docker engine that Testcontainers finds (DOCKER_HOST, or the usual sockets), and the images that the environment names, as for docker-compose.yml.
/// tests/nightly/docker starts an engine, builds the images and names them.
/// </summary>
internal static class Engine
{
    private static readonly string[] ImageVariables = ["NODE_IMAGE", "ROUTER_IMAGE", "CLI_IMAGE", "ETCD_IMAGE"];

    private static readonly Lazy<IDockerClient> Connection =
        new(static () => TestcontainersSettings.OS.DockerEndpointAuthConfig.GetDockerClientBuilder().Build());

    static Engine()
    {
        // Testcontainers' own container for cleaning up would have to be pulled. The tests remove what they made; what an aborted run leaves has the label
        // org.testcontainers.
        TestcontainersSettings.ResourceReaperEnabled = false;
        Lacks = WhyNoEngine() ?? WhyNoImages();
    }

    /// <summary>Why containers cannot be tested here; null if they can.</summary>
    public static string? Lacks { get; }

    /// <summary>The engine's API, for what Testcontainers does not do: kill a container, and take it off a network.</summary>
    public static IDockerClient Api => Connection.Value;

    public static string NodeImage => Named("NODE_IMAGE");

    public static string RouterImage => Named("ROUTER_IMAGE");

    public static string CliImage => Named("CLI_IMAGE");

    public static string EtcdImage => Named("ETCD_IMAGE");

    /// <summary>The image to which an upgrade brings nodes. Without a name of its own it is the same program again.</summary>
    public static string UpgradedNodeImage => Environment.GetEnvironmentVariable("UPGRADED_NODE_IMAGE") ?? NodeImage;

    /// <inheritdoc cref="UpgradedNodeImage"/>
    public static string UpgradedRouterImage => Environment.GetEnvironmentVariable("UPGRADED_ROUTER_IMAGE") ?? RouterImage;

    private static string Named(string variable) =>
        Environment.GetEnvironmentVariable(variable) ?? throw new InvalidOperationException($"{variable} names no image.");

    private static string? WhyNoEngine()
    {
        try
        {
            new NetworkBuilder().Build();
            return null;
        }
        catch (DockerUnavailableException none)
        {
            var tried = (none.InnerException as AggregateException)?.InnerExceptions ?? [];
            var failures = tried.Select(static failure => $"{failure.Message} {failure.InnerException?.Message}").DefaultIfEmpty("there is no socket");
            return $"no Docker engine answers: {string.Join(' ', failures).ReplaceLineEndings(" ").Trim()}";
        }
    }

    private static string? WhyNoImages()
    {
        var missing = ImageVariables.Where(static variable => string.IsNullOrEmpty(Environment.GetEnvironmentVariable(variable))).ToList();
        return missing.Count == 0 ? null : $"{string.Join(", ", missing)} name no images to test: tests/nightly/docker builds and names them";
    }
}
