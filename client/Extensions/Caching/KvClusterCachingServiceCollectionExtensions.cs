using KvCluster.Client;
using KvCluster.Extensions.Caching;
using Microsoft.Extensions.Caching.Distributed;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Options;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds caches in a cluster as services.</summary>
public static class KvClusterCachingServiceCollectionExtensions
{
    private static readonly TimeSpan LongestTimeout = TimeSpan.FromDays(1);

    /// <summary>
    /// Adds the distributed cache: an <see cref="IDistributedCache"/>, which is also an <see cref="IBufferDistributedCache"/>, over a client among the
    /// services. While the cluster is away, reads find nothing and what is set is lost, after <see cref="KvDistributedCacheOptions.Timeout"/>. A remove
    /// throws a <see cref="KvException"/>.
    /// </summary>
    /// <param name="services">The services.</param>
    /// <param name="configure">Sets the options; null: the defaults.</param>
    /// <param name="client">The name of the client, which is a keyed service; null for the one without a name.</param>
    public static IServiceCollection AddKvClusterDistributedCache(
        this IServiceCollection services, Action<KvDistributedCacheOptions>? configure = null, string? client = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        services.AddOptions<KvDistributedCacheOptions>()
            .Configure(configure ?? (static _ => { }))
            .Validate(static options => CacheKeys.IsPrefix(options.Prefix), "The prefix of the distributed cache must be text of 1 to 512 bytes.")
            .Validate(
                static options => options.Timeout > TimeSpan.Zero && options.Timeout <= LongestTimeout,
                "The timeout of the distributed cache must be more than nothing, and at most a day.")
            .Validate(
                static options => options.DefaultSlidingExpiration > TimeSpan.Zero, "The default expiry of the distributed cache must be more than nothing.")
            .ValidateOnStart();
        services.AddSingleton<IDistributedCache>(provider => new KvDistributedCache(
            ClientOf(provider, client), provider.GetRequiredService<IOptions<KvDistributedCacheOptions>>().Value, TimeOf(provider), LogOf(provider)));
        return services;
    }

    private static KvClient ClientOf(IServiceProvider services, string? name) =>
        name is null ? services.GetRequiredService<KvClient>() : services.GetRequiredKeyedService<KvClient>(name);

    private static TimeProvider TimeOf(IServiceProvider services) => services.GetService<TimeProvider>() ?? TimeProvider.System;

    private static ILogger LogOf(IServiceProvider services) => services.GetService<ILoggerFactory>()?.CreateLogger(CacheLog.Category) ?? NullLogger.Instance;
}
