using Grpc.AspNetCore.Server;
using Grpc.AspNetCore.Server.Model;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Adds the policy to a server.</summary>
internal static class CallPolicyServices
{
    /// <summary>Must be called before <c>AddGrpc</c>.</summary>
    public static void AddCallPolicy(this WebApplicationBuilder builder)
    {
        builder.Services
            .AddSingleton(typeof(IGrpcServiceActivator<>), typeof(OneInstance<>))
            .AddSingleton(typeof(IServiceMethodProvider<>), typeof(BoundMethods<>))
            .AddSingleton<CallPolicy>()
            .AddSingleton<IStartupFilter, Filter>();
        builder.Host.UseServiceProviderFactory(new OneBinding());
    }

    private sealed class Filter(CallPolicy policy) : IStartupFilter
    {
        public Action<IApplicationBuilder> Configure(Action<IApplicationBuilder> next) => app =>
        {
            app.Use(rest => context => policy.ServeAsync(context, rest));
            next(app);
        };
    }

    /// <summary>Serves all calls of a service with one instance, which is a singleton of the host or is created with its services.</summary>
    private sealed class OneInstance<TService>(IServiceProvider services) : IGrpcServiceActivator<TService>
        where TService : class
    {
        private readonly TService _instance = services.GetService<TService>() ?? ActivatorUtilities.CreateInstance<TService>(services);

        public GrpcActivatorHandle<TService> Create(IServiceProvider serviceProvider) => new(_instance, created: false, state: null);

        public ValueTask ReleaseAsync(GrpcActivatorHandle<TService> service) => ValueTask.CompletedTask;
    }

    /// <summary>Removes the binding that <c>AddGrpc</c> adds beside ours. With both, each method would be served twice.</summary>
    private sealed class OneBinding : IServiceProviderFactory<IServiceCollection>
    {
        private readonly DefaultServiceProviderFactory _inner = new();

        public IServiceCollection CreateBuilder(IServiceCollection services)
        {
            var bindings = services.Where(static service => service.ServiceType == typeof(IServiceMethodProvider<>));
            foreach (var other in bindings.Where(static binding => binding.ImplementationType != typeof(BoundMethods<>)).ToList())
                services.Remove(other);
            return _inner.CreateBuilder(services);
        }

        public IServiceProvider CreateServiceProvider(IServiceCollection containerBuilder) => _inner.CreateServiceProvider(containerBuilder);
    }
}
