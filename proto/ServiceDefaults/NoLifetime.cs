using Microsoft.Extensions.Hosting;

namespace KvCluster.ServiceDefaults;

/// <summary>A host that is started and stopped by its owner and listens to no signals.</summary>
internal sealed class NoLifetime : IHostLifetime
{
    public Task WaitForStartAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    public Task StopAsync(CancellationToken cancellationToken) => Task.CompletedTask;
}
