using System.Reflection;
using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Finds the generated method that binds a service, through the attribute on the service's generated base class.</summary>
internal static class ServiceBinding
{
    /// <exception cref="InvalidOperationException">The type has no generated base class.</exception>
    public static void Bind(object service, ServiceBinderBase binder)
    {
        for (var type = service.GetType(); type is not null; type = type.BaseType)
        {
            if (type.GetCustomAttribute<BindServiceMethodAttribute>(inherit: false) is not { } attribute)
                continue;
            var bind = attribute.BindType.GetMethod(
                attribute.BindMethodName,
                BindingFlags.Static | BindingFlags.Public | BindingFlags.NonPublic,
                [typeof(ServiceBinderBase), type])
                ?? throw new InvalidOperationException($"{attribute.BindType} has no method {attribute.BindMethodName} for {type}.");
            bind.Invoke(null, BindingFlags.DoNotWrapExceptions, null, [binder, service], null);
            return;
        }
        throw new InvalidOperationException($"{service.GetType()} does not derive from a generated service.");
    }
}
