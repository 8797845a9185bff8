using KvCluster.Client;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Extensions.Caching;

/// <summary>What the caches take from the services of their program. Any thread.</summary>
internal static class CacheServices
{
    /// <summary>The client of a name; null for the one without a name.</summary>
    public static KvClient ClientOf(IServiceProvider services, string? name) =>
        name is null ? services.GetRequiredService<KvClient>() : services.GetRequiredKeyedService<KvClient>(name);

    /// <summary>The clock.</summary>
    public static TimeProvider TimeOf(IServiceProvider services) => services.GetService<TimeProvider>() ?? TimeProvider.System;

    /// <summary>Where the caches log.</summary>
    public static ILogger LogOf(IServiceProvider services) => services.GetService<ILoggerFactory>()?.CreateLogger(CacheLog.Category) ?? NullLogger.Instance;
}
