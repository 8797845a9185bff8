using System.Globalization;
using KvCluster.Client;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;

namespace KvCluster.Extensions.HealthChecks;

/// <summary>
/// Asks a cluster through a client of the program. Made for each check by whoever runs the checks, who takes an exception as the check's failure.
/// </summary>
/// <param name="services">Have the client.</param>
/// <param name="client">Its name; null for the one without.</param>
internal sealed class ClusterHealthCheck(IServiceProvider services, string? client) : IHealthCheck
{
    public async Task<HealthCheckResult> CheckHealthAsync(HealthCheckContext context, CancellationToken cancellationToken = default)
    {
        // Not before the check, where an exception would end all checks.
        var asked = client is null ? services.GetRequiredService<KvClient>() : services.GetRequiredKeyedService<KvClient>(client);
        try
        {
            var took = await asked.PingAsync(cancellationToken).ConfigureAwait(false);
            return HealthCheckResult.Healthy(string.Create(CultureInfo.InvariantCulture, $"The cluster answered in {took.TotalMilliseconds:0.0} ms."));
        }
        catch (KvException failure)
        {
            return new HealthCheckResult(context.Registration.FailureStatus, $"{failure.Reason}: {failure.Message}", failure);
        }
    }
}
