using Grpc.AspNetCore.Server;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Adds the policy to a server.</summary>
internal static class CallPolicyServices
{
    /// <summary>Must be called before <c>AddGrpc</c>.</summary>
    public static void AddCallPolicy(this IServiceCollection services) => services
        .AddSingleton(typeof(IGrpcServiceActivator<>), typeof(OneInstance<>))
        .AddSingleton<CallPolicy>()
        .AddSingleton<IStartupFilter, Filter>();

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
}
