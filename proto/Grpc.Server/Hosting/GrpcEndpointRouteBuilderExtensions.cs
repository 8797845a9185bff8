using Grpc.AspNetCore.Server.Binding;
using Grpc.AspNetCore.Server.Hosting;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Routing;
using Microsoft.Extensions.DependencyInjection;

namespace Microsoft.AspNetCore.Builder;

/// <summary>Serves gRPC services.</summary>
internal static class GrpcEndpointRouteBuilderExtensions
{
    /// <summary>
    /// Serves every method of a service with one instance of it, which is a singleton from the service provider or is created with it. Must be called before
    /// the host starts.
    /// </summary>
    /// <exception cref="InvalidOperationException">
    /// AddGrpc was not called, another server replaced its own, the type is not a generated service, or a method is already served.
    /// </exception>
    public static void MapGrpcService<TService>(this IEndpointRouteBuilder builder)
        where TService : class
    {
        var provider = builder.ServiceProvider;
        var dispatcher = provider.GetService<CallDispatcher>() ?? throw new InvalidOperationException("Call AddGrpc before MapGrpcService.");
        if (provider.GetService<IServer>() is not GrpcServer)
            throw new InvalidOperationException("The host's server was replaced after AddGrpc; call AddGrpc last.");
        ServiceBinding.Bind(provider.GetService<TService>() ?? ActivatorUtilities.CreateInstance<TService>(provider), dispatcher);
    }
}
