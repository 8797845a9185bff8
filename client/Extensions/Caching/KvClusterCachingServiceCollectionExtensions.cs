using KvCluster.Client;
using KvCluster.Extensions.Caching;
using Microsoft.Extensions.Caching.Distributed;
using Microsoft.Extensions.Caching.Hybrid;
using Microsoft.Extensions.Options;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds caches in a cluster as services.</summary>
public static class KvClusterCachingServiceCollectionExtensions
{
    private static readonly TimeSpan LongestTimeout = TimeSpan.FromDays(1);
    private static readonly TimeSpan LongestExpiry = TimeSpan.FromDays(100);

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
            CacheServices.ClientOf(provider, client), provider.GetRequiredService<IOptions<KvDistributedCacheOptions>>().Value, CacheServices.TimeOf(provider),
            CacheServices.LogOf(provider)));
        return services;
    }

    /// <summary>
    /// Adds the hybrid cache, <see cref="HybridCache"/>, over a client among the services: entries are in the cluster, and in the memory of each process that
    /// uses them, from which each change of them in the cluster removes them at once. While the cluster is away, values are made anew, after
    /// <see cref="KvHybridCacheOptions.Timeout"/>, and are not kept. A remove, also by a tag, throws a <see cref="KvException"/>.
    /// </summary>
    /// <param name="services">The services. Serializers among them are used, as by the hybrid cache of .NET.</param>
    /// <param name="configure">Sets the options; null: the defaults.</param>
    /// <param name="client">The name of the client, which is a keyed service; null for the one without a name.</param>
    public static IServiceCollection AddKvClusterHybridCache(
        this IServiceCollection services, Action<KvHybridCacheOptions>? configure = null, string? client = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        services.AddOptions<KvHybridCacheOptions>()
            .Configure(configure ?? (static _ => { }))
            .Validate(static options => CacheKeys.IsPrefix(options.Prefix), "The prefix of the hybrid cache must be text of 1 to 512 bytes.")
            .Validate(
                static options => options.Timeout > TimeSpan.Zero && options.Timeout <= LongestTimeout,
                "The timeout of the hybrid cache must be more than nothing, and at most a day.")
            .Validate(
                static options => options.Expiration > TimeSpan.Zero && options.ExpirationMax >= options.Expiration && options.ExpirationMax <= LongestExpiry,
                "The expiry of the hybrid cache must be more than nothing and at most the longest one, and that at most 100 days.")
            .Validate(
                static options => options is { LocalBytesMax: > 0, LocalSilenceMax.Ticks: > 0 },
                "The bytes in memory and the silence of shards must be more than nothing in the hybrid cache.")
            .ValidateOnStart();
        services.AddSingleton<HybridCache>(provider => new KvHybridCache(
            CacheServices.ClientOf(provider, client), provider.GetRequiredService<IOptions<KvHybridCacheOptions>>().Value, new HybridSerializers(provider),
            CacheServices.TimeOf(provider), CacheServices.LogOf(provider)));
        return services;
    }
}
