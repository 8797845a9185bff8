using Grpc.AspNetCore.Server;
using Grpc.AspNetCore.Server.Hosting;
using Microsoft.AspNetCore.Hosting.Server;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds gRPC to a host.</summary>
internal static class GrpcServicesExtensions
{
    /// <summary>
    /// Handles gRPC before the host's own pipeline: a request with a gRPC content type goes directly from the server to its handler, and every other one to
    /// the pipeline. Must be called after the server (Kestrel) is registered.
    /// </summary>
    /// <exception cref="InvalidOperationException">No server is registered.</exception>
    public static void AddGrpc(this IServiceCollection services, Action<GrpcServiceOptions>? configureOptions = null)
    {
        services.Configure(configureOptions ?? (static _ => { }));
        if (services.Any(service => service.ServiceType == typeof(CallDispatcher)))
            return;
        var server = services.LastOrDefault(service => service.ServiceType == typeof(IServer) && !service.IsKeyedService)
            ?? throw new InvalidOperationException("AddGrpc puts itself before the host's server, and none is registered.");
        services.Remove(server);
        services.AddSingleton<CallDispatcher>();
        services.AddSingleton<IServer>(provider => new GrpcServer(Create(provider, server), provider.GetRequiredService<CallDispatcher>()));
    }

    private static IServer Create(IServiceProvider provider, ServiceDescriptor server) =>
        (IServer)(server.ImplementationInstance
            ?? server.ImplementationFactory?.Invoke(provider)
            ?? ActivatorUtilities.CreateInstance(provider, server.ImplementationType!));
}
