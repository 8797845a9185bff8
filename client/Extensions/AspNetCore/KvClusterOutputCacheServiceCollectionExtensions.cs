using KvCluster.Client;
using KvCluster.Extensions.AspNetCore;
using KvCluster.Extensions.Caching;
using Microsoft.AspNetCore.OutputCaching;
using Microsoft.Extensions.Options;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds the output cache of a program in a cluster.</summary>
public static class KvClusterOutputCacheServiceCollectionExtensions
{
    private static readonly TimeSpan LongestTimeout = TimeSpan.FromDays(1);

    /// <summary>
    /// Keeps the responses that ASP.NET Core caches in a cluster, over a client among the services. Besides it <c>AddOutputCache</c> and
    /// <c>UseOutputCache</c> are needed, as for those in memory. While the cluster is away, responses are made anew, after
    /// <see cref="KvOutputCacheOptions.Timeout"/>. An eviction throws a <see cref="KvException"/>.
    /// </summary>
    /// <param name="services">The services.</param>
    /// <param name="configure">Sets the options; null: the defaults.</param>
    /// <param name="client">The name of the client, which is a keyed service; null for the one without a name.</param>
    public static IServiceCollection AddKvClusterOutputCache(
        this IServiceCollection services, Action<KvOutputCacheOptions>? configure = null, string? client = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        services.AddOptions<KvOutputCacheOptions>()
            .Configure(configure ?? (static _ => { }))
            .Validate(static options => CacheKeys.IsPrefix(options.Prefix), "The prefix of the output cache must be text of 1 to 512 bytes.")
            .Validate(
                static options => options.Timeout > TimeSpan.Zero && options.Timeout <= LongestTimeout,
                "The timeout of the output cache must be more than nothing, and at most a day.")
            .ValidateOnStart();
        services.AddSingleton<IOutputCacheStore>(provider => new KvOutputCacheStore(
            CacheServices.ClientOf(provider, client), provider.GetRequiredService<IOptions<KvOutputCacheOptions>>().Value, CacheServices.TimeOf(provider),
            CacheServices.LogOf(provider)));
        return services;
    }
}
