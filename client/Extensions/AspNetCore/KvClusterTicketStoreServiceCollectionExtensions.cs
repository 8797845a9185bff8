using KvCluster.Client;
using KvCluster.Extensions.AspNetCore;
using KvCluster.Extensions.Caching;
using Microsoft.AspNetCore.Authentication.Cookies;
using Microsoft.AspNetCore.DataProtection;
using Microsoft.Extensions.Options;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds the store of a program's tickets in a cluster.</summary>
public static class KvClusterTicketStoreServiceCollectionExtensions
{
    /// <summary>
    /// Keeps the tickets of the users that cookies sign in, in a cluster, over a client among the services: a cookie has only the name of its ticket. While the
    /// cluster is away, requests with a cookie wait and fail with a <see cref="KvException"/>, because without its ticket nobody knows whose they are. The keys
    /// of data protection must be the same in all processes.
    /// </summary>
    /// <param name="services">The services.</param>
    /// <param name="scheme">The authentication scheme of the cookies; null: the default of cookies.</param>
    /// <param name="configure">Sets the options; null: the defaults.</param>
    /// <param name="client">The name of the client, which is a keyed service; null for the one without a name.</param>
    public static IServiceCollection AddKvClusterTicketStore(
        this IServiceCollection services, string? scheme = null, Action<KvTicketStoreOptions>? configure = null, string? client = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        scheme ??= CookieAuthenticationDefaults.AuthenticationScheme;
        services.AddOptions<KvTicketStoreOptions>(scheme)
            .Configure(configure ?? (static _ => { }))
            .Validate(static options => CacheKeys.IsPrefix(options.Prefix), "The prefix of the store of tickets must be text of 1 to 512 bytes.")
            .Validate(static options => options.Expiration > TimeSpan.Zero, "The expiry of tickets must be more than nothing.")
            .ValidateOnStart();
        services.AddOptions<CookieAuthenticationOptions>(scheme).Configure<IServiceProvider>((options, provider) => options.SessionStore = new KvTicketStore(
            CacheServices.ClientOf(provider, client), provider.GetRequiredService<IOptionsMonitor<KvTicketStoreOptions>>().Get(scheme),
            provider.GetRequiredService<IDataProtectionProvider>(), CacheServices.TimeOf(provider)));
        return services;
    }
}
