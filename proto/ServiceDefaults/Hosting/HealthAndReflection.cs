using Grpc.Reflection;
using KvCluster.V1;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Serves, beside the calls of a node or router, what any gRPC prober and grpcurl ask for.</summary>
internal static class HealthAndReflection
{
    /// <summary>Adds the descriptors of the services that nodes and routers have.</summary>
    /// <param name="services">The server's services.</param>
    /// <param name="servesAdmin">Whether operators' calls are among them.</param>
    public static IServiceCollection AddReflection(this IServiceCollection services, bool servesAdmin)
    {
        Google.Protobuf.Reflection.ServiceDescriptor[] always =
        [
            Kv.Descriptor, Cluster.Descriptor, Grpc.Health.V1.Health.Descriptor, Grpc.Reflection.V1.ServerReflection.Descriptor,
        ];
        return services.AddReflection(servesAdmin ? [.. always, KvCluster.Admin.V1.Admin.Descriptor] : always);
    }

    /// <summary>Adds the descriptors of these services.</summary>
    public static IServiceCollection AddReflection(this IServiceCollection services, params Google.Protobuf.Reflection.ServiceDescriptor[] described) =>
        services.AddSingleton(new ReflectionV1ServiceImpl(described)).AddSingleton(new ReflectionServiceImpl(described));

    /// <summary>Maps the services. The health service is the caller's singleton.</summary>
    public static void MapHealthAndReflection(this WebApplication app)
    {
        app.MapGrpcService<GrpcHealth>();
        app.MapReflection();
    }

    /// <summary>Maps both versions of reflection.</summary>
    public static void MapReflection(this WebApplication app)
    {
        app.MapGrpcService<ReflectionV1ServiceImpl>();
        app.MapGrpcService<ReflectionServiceImpl>();
    }
}
