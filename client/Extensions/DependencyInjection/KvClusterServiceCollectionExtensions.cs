using KvCluster.Client;
using KvCluster.Extensions.DependencyInjection;
using Microsoft.Extensions.Configuration;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>
/// Adds clients of KvCluster as services. Each is a singleton, a <see cref="KvClient"/>, which is also the <see cref="IKvClient"/> unless the program has
/// added another one before. A client with a name is a keyed service. It has the options <see cref="KvClientOptions"/> of its name, which are put together in
/// this order: the log is that of the services; the connection string of its name, "kv" for the client without a name, is read if the configuration of the
/// services has one; then come sections and delegates in the order of their calls.
/// </summary>
/// <remarks>
/// The options are validated when the host starts: an invalid one fails the start with a line for each mistake, of all texts and values and of the certificate
/// files. The cluster is not asked then. A client connects with its first call, and waits for a cluster that is not there yet as in any other call. Options are
/// read once, so a change of configuration has no effect before the next start. Where services are disposed without waiting, a client closes at once
/// (<see cref="KvClient.Dispose"/>).
/// </remarks>
public static class KvClusterServiceCollectionExtensions
{
    /// <summary>Adds a client with the connection string "kv", or for the cluster at 127.0.0.1:7400 if there is none.</summary>
    public static IServiceCollection AddKvCluster(this IServiceCollection services)
    {
        ArgumentNullException.ThrowIfNull(services);
        ClientRegistration.Add(services, name: null);
        return services;
    }

    /// <summary>Adds a client whose options are set by code.</summary>
    public static IServiceCollection AddKvCluster(this IServiceCollection services, Action<KvClientOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(configure);
        ClientRegistration.Add(services, name: null).Configure(configure);
        return services;
    }

    /// <summary>
    /// Adds a client whose options are in a section of the configuration, with the names of <see cref="KvClientOptions"/>. Any other name is a mistake, and so
    /// is a section that is missing or empty, unless a connection string or code sets the endpoints.
    /// </summary>
    public static IServiceCollection AddKvCluster(this IServiceCollection services, IConfiguration section)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(section);
        ClientRegistration.Add(services, name: null).Configure(options => SectionSettings.Read(options, section));
        return services;
    }

    /// <summary>Adds a client with the connection string of its name.</summary>
    /// <param name="services">The services.</param>
    /// <param name="name">The key of the service, the name of its options and of its connection string.</param>
    public static IServiceCollection AddKvCluster(this IServiceCollection services, string name)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentException.ThrowIfNullOrEmpty(name);
        ClientRegistration.Add(services, name);
        return services;
    }

    /// <summary>Adds a client with a name, whose options are set by code.</summary>
    /// <param name="services">The services.</param>
    /// <param name="name">The key of the service, the name of its options and of its connection string.</param>
    /// <param name="configure">Sets the options.</param>
    public static IServiceCollection AddKvCluster(this IServiceCollection services, string name, Action<KvClientOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentException.ThrowIfNullOrEmpty(name);
        ArgumentNullException.ThrowIfNull(configure);
        ClientRegistration.Add(services, name).Configure(configure);
        return services;
    }

    /// <summary>
    /// Adds a client with a name, whose options are in a section of the configuration, with the names of <see cref="KvClientOptions"/>. Any other name is a
    /// mistake, and so is a section that is missing or empty, unless a connection string or code sets the endpoints.
    /// </summary>
    /// <param name="services">The services.</param>
    /// <param name="name">The key of the service, the name of its options and of its connection string.</param>
    /// <param name="section">Has the options.</param>
    public static IServiceCollection AddKvCluster(this IServiceCollection services, string name, IConfiguration section)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentException.ThrowIfNullOrEmpty(name);
        ArgumentNullException.ThrowIfNull(section);
        ClientRegistration.Add(services, name).Configure(options => SectionSettings.Read(options, section));
        return services;
    }
}
