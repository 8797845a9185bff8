using KvCluster.Client;
using KvCluster.Client.Telemetry;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace KvCluster.Extensions.DependencyInjection;

/// <summary>Puts a client and its options into a collection of services. For whoever builds that collection, on its thread.</summary>
internal static class ClientRegistration
{
    /// <summary>The name of the connection string of the client without a name.</summary>
    private const string ConnectionDefault = "kv";

    /// <summary>Adds a client, unless it was added before, and returns its options, which the caller goes on to set.</summary>
    /// <param name="services">The services.</param>
    /// <param name="name">The client's name; null for the one without.</param>
    public static OptionsBuilder<KvClientOptions> Add(IServiceCollection services, string? name)
    {
        var options = services.AddOptions<KvClientOptions>(name ?? Options.DefaultName);
        // What another call has set must not be set back to the connection string by this one.
        if (services.Any(service => service.ServiceType == typeof(KvClient) && Equals(service.ServiceKey, name)))
            return options;
        options.Configure<IServiceProvider>((settings, provider) => SetDefaults(settings, provider, name ?? ConnectionDefault)).ValidateOnStart();
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IValidateOptions<KvClientOptions>, ClientOptionsValidation>());
        // Another client behind the interface that the program has added before, as a test does, stays.
        if (name is null)
        {
            services.AddSingleton<KvClient>(static provider => Create(provider, Options.DefaultName));
            services.TryAddSingleton<IKvClient>(static provider => provider.GetRequiredService<KvClient>());
        }
        else
        {
            services.AddKeyedSingleton<KvClient>(name, static (provider, key) => Create(provider, (string)key!));
            services.TryAddKeyedSingleton<IKvClient>(name, static (provider, key) => provider.GetRequiredKeyedService<KvClient>(key));
        }
        return options;
    }

    private static void SetDefaults(KvClientOptions options, IServiceProvider provider, string connection)
    {
        if (provider.GetService<ILoggerFactory>() is { } logs)
            options.Log = logs.CreateLogger(ClientMetrics.Name);
        if (provider.GetService<IConfiguration>()?.GetConnectionString(connection) is { } text)
            ClientSettings.ReadConnectionString(options, $"ConnectionStrings:{connection}", text);
    }

    private static KvClient Create(IServiceProvider provider, string name) =>
        new(provider.GetRequiredService<IOptionsMonitor<KvClientOptions>>().Get(name));
}
