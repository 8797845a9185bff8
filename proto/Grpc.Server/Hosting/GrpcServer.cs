using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>The host's server, with gRPC handled before the host's application. Owns the server.</summary>
internal sealed class GrpcServer(IServer inner, CallDispatcher dispatcher) : IServer
{
    public IFeatureCollection Features => inner.Features;

    public Task StartAsync<TContext>(IHttpApplication<TContext> application, CancellationToken cancellationToken)
        where TContext : notnull
    {
        dispatcher.Freeze();
        return inner.StartAsync(new GrpcApplication<TContext>(application, dispatcher), cancellationToken);
    }

    public Task StopAsync(CancellationToken cancellationToken) => inner.StopAsync(cancellationToken);

    public void Dispose() => inner.Dispose();
}
