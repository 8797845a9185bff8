using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;

namespace KvCluster.ServiceDefaults;

/// <summary>A server that stops within a moment: says that it does, lets calls under way end, then breaks off what streams.</summary>
internal sealed class OwnedServer(WebApplication app, HealthService? health = null) : IAsyncDisposable
{
    /// <summary>For unary calls to end; streams do not end by themselves.</summary>
    private static readonly TimeSpan Grace = TimeSpan.FromMilliseconds(300);

    public WebApplication App => app;

    /// <summary>Starts what was built; of one that does not start nothing is left.</summary>
    /// <exception cref="IOException">It cannot listen there: the port is taken, or the address is not this machine's or not allowed.</exception>
    public static async Task<OwnedServer> StartAsync(WebApplication app, Uri listen, HealthService? health, CancellationToken cancellationToken)
    {
        try
        {
            await app.StartAsync(cancellationToken).ConfigureAwait(false);
        }
        catch (Exception failure)
        {
            await app.DisposeAsync().ConfigureAwait(false);
            if (failure is SocketException)
                throw new IOException($"Cannot listen at {listen.GetLeftPart(UriPartial.Authority)}: {failure.Message}.", failure);
            throw;
        }
        return new OwnedServer(app, health);
    }

    public async ValueTask DisposeAsync()
    {
        health?.Stop();
        using var grace = new CancellationTokenSource(Grace);
        try
        {
            await app.StopAsync(grace.Token).ConfigureAwait(false);
        }
        catch (OperationCanceledException) when (grace.IsCancellationRequested)
        {
            // Connections are aborted by now.
        }
        await app.DisposeAsync().ConfigureAwait(false);
    }
}
