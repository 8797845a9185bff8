using KvCluster.Client;
using KvCluster.Extensions.DataProtection;
using Microsoft.AspNetCore.DataProtection.KeyManagement;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Options;

namespace Microsoft.AspNetCore.DataProtection;

/// <summary>Keeps the keys of data protection in a cluster.</summary>
public static class KvClusterDataProtectionBuilderExtensions
{
    /// <summary>
    /// Keeps the keys of data protection in a cluster, over a client among the services. Processes of a program create a key one at a time, so those that start
    /// together have one in common. The keys are not encrypted unless a <c>ProtectKeysWith</c> is called, too.
    /// </summary>
    /// <param name="builder">The data protection.</param>
    /// <param name="prefix">What all keys of the cluster begin with that are for this, and no others.</param>
    /// <param name="client">The name of the client, which is a keyed service; null for the one without a name.</param>
    public static IDataProtectionBuilder PersistKeysToKvCluster(
        this IDataProtectionBuilder builder, string prefix = "dataprotection/", string? client = null)
    {
        ArgumentNullException.ThrowIfNull(builder);
        ArgumentException.ThrowIfNullOrEmpty(prefix);
        builder.Services.AddSingleton<IConfigureOptions<KeyManagementOptions>>(provider => new ConfigureOptions<KeyManagementOptions>(
            options => options.XmlRepository = new KvXmlRepository(ClientOf(provider, client), $"{prefix}e/")));
        // The one that there is without this.
        builder.Services.TryAddSingleton<XmlKeyManager>();
        builder.Services.Replace(ServiceDescriptor.Singleton<IKeyManager>(
            provider => new SharedKeyManager(provider.GetRequiredService<XmlKeyManager>(), ClientOf(provider, client), $"{prefix}lock")));
        return builder;
    }

    private static KvClient ClientOf(IServiceProvider services, string? name) =>
        name is null ? services.GetRequiredService<KvClient>() : services.GetRequiredKeyedService<KvClient>(name);
}
