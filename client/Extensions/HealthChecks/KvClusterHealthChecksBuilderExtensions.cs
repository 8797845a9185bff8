using KvCluster.Client;
using KvCluster.Extensions.HealthChecks;
using Microsoft.Extensions.Diagnostics.HealthChecks;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds health checks of clusters.</summary>
public static class KvClusterHealthChecksBuilderExtensions
{
    /// <summary>
    /// Adds a check that is healthy if the cluster answers a <see cref="KvClient.PingAsync"/> of a client among the services. While the cluster fails over, the
    /// check waits for it as any call does, for <see cref="KvClientOptions.Timeout"/> at most. If the client cannot be made, because its options are invalid,
    /// the check fails and the others do not.
    /// </summary>
    /// <param name="builder">The checks.</param>
    /// <param name="client">The name of the client, which is a keyed service; null for the one without a name.</param>
    /// <param name="name">The name of the check; null means "kvcluster", and "kvcluster-NAME" for a client with a name.</param>
    /// <param name="failureStatus">What the check reports when it fails; null means unhealthy.</param>
    /// <param name="tags">Tags of the check.</param>
    /// <param name="timeout">When the check gives up; null means no sooner than the client does.</param>
    public static IHealthChecksBuilder AddKvCluster(
        this IHealthChecksBuilder builder, string? client = null, string? name = null, HealthStatus? failureStatus = null, IEnumerable<string>? tags = null,
        TimeSpan? timeout = null)
    {
        ArgumentNullException.ThrowIfNull(builder);
        name ??= client is null ? "kvcluster" : $"kvcluster-{client}";
        return builder.Add(new HealthCheckRegistration(name, services => new ClusterHealthCheck(services, client), failureStatus, tags, timeout));
    }
}
