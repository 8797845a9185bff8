using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>A server that stops quickly: it announces that it is stopping, lets calls in progress end, and then aborts streams.</summary>
internal sealed class OwnedServer(WebApplication app, GrpcHealth? health = null) : IAsyncDisposable
{
    /// <summary>The time for unary calls to end; streams do not end by themselves.</summary>
    private static readonly TimeSpan Grace = TimeSpan.FromMilliseconds(300);

    public WebApplication App => app;

    /// <summary>Starts a server that was built. If it does not start, it is disposed.</summary>
    /// <exception cref="IOException">It cannot listen: the port is in use, or the address is not this machine's or not allowed.</exception>
    public static async Task<OwnedServer> StartAsync(WebApplication app, Uri listen, GrpcHealth? health, CancellationToken cancellationToken)
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
            // Connections have been aborted by now.
        }
        await app.DisposeAsync().ConfigureAwait(false);
    }
}
