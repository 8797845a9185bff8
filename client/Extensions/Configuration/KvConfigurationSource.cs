using KvCluster.Client;
using Microsoft.Extensions.Configuration;

namespace KvCluster.Extensions.Configuration;

/// <summary>Makes the provider of a configuration in a cluster. Called by whoever builds the configuration.</summary>
internal sealed class KvConfigurationSource(KvConfigurationOptions options) : IConfigurationSource
{
    public IConfigurationProvider Build(IConfigurationBuilder builder) => options.Client is { } given
        ? new KvConfigurationProvider(given, isOwn: false, options)
        : new KvConfigurationProvider(new KvClient(OptionsOf(builder)), isOwn: true, options);

    // A builder that is a configuration, too, as that of a host, has the sources that were added before.
    private KvClientOptions OptionsOf(IConfigurationBuilder builder) =>
        (options.ConnectionString ?? (builder as IConfiguration)?.GetConnectionString("kv")) is { } text
            ? KvClientOptions.FromConnectionString(text)
            : new KvClientOptions();
}
