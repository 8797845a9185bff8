using Microsoft.Extensions.Hosting;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Lets a host be started and stopped by its owner only, without handling signals.</summary>
internal sealed class NoLifetime : IHostLifetime
{
    public Task WaitForStartAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    public Task StopAsync(CancellationToken cancellationToken) => Task.CompletedTask;
}
