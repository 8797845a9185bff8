using KvCluster.V1;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults;

/// <summary>Serves, beside the calls of a node or router, what any gRPC prober and grpcurl ask for.</summary>
internal static class HealthAndReflection
{
    /// <summary>Adds the descriptors of all services that nodes and routers have.</summary>
    public static IServiceCollection AddReflection(this IServiceCollection services) => services.AddSingleton(new ReflectionCatalog(
        Kv.Descriptor, Cluster.Descriptor, KvCluster.Admin.V1.Admin.Descriptor, Grpc.Health.V1.Health.Descriptor, Grpc.Reflection.V1.ServerReflection.Descriptor));

    /// <summary>Maps the services. The health service is the caller's singleton.</summary>
    public static void MapHealthAndReflection(this WebApplication app)
    {
        app.MapGrpcService<HealthService>();
        app.MapGrpcService<ReflectionService>();
        app.MapGrpcService<ReflectionAlphaService>();
    }
}
